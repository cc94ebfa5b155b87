"""What has to be known of a run at this moment before it is resumed, cancelled or waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orchestrator.base.states import State
from orchestrator.runs.folder.run_folder import RunFolder


class Seen(Protocol):
    """The newest attempt of a run and its state; `watch.view.View` is one."""

    @property
    def run(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def state(self) -> State: ...
    @property
    def reason(self) -> str: ...
    @property
    def job(self) -> str | None: ...
    @property
    def scheduler(self) -> str: ...


Look = Callable[[RunFolder], Seen]
