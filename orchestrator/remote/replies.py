"""What a login node answers to each question and request, as records; `values.received` reads them strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.remote.login_node.sent_files import SentEntry
from orchestrator.report.screen.detail import Detail
from orchestrator.runs.state.view import View


@dataclass(frozen=True)
class Missing:
    """Of the wheels or files that were named, those that are not there."""

    missing: tuple[str, ...]


@dataclass(frozen=True)
class NewOutput:
    """How many bytes of what arrives a call wrote to its output and to its errors, and how it ended, if it has."""

    out: int
    err: int
    exit: int | None
    gone: bool


@dataclass(frozen=True)
class Command:
    """The command that runs the verb that was named."""

    command: str


@dataclass(frozen=True)
class Nothing:
    """That it was done."""


@dataclass(frozen=True)
class Made:
    """That there is a run. `unsure` says why it is unknown whether the scheduler took its job, '' if it did."""

    unsure: str = ""


@dataclass(frozen=True)
class Placed:
    """The copy of a run file and its site; `names` has the names here of paths there."""

    file: str
    site: str
    settings: tuple[str, ...]
    names: Mapping[str, str]


@dataclass(frozen=True)
class Views:
    """Runs by their ids, None for one that is not there."""

    runs: Mapping[str, View | None]


@dataclass(frozen=True)
class HeldThere:
    """A held allocation."""

    view: View


@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which the next attempt continues, None for the beginning."""

    origin: str | None


@dataclass(frozen=True)
class Rows:
    """The metrics of a run."""

    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Listed:
    """What is in the copy of a run that waits to be fetched."""

    entries: tuple[SentEntry, ...]


@dataclass(frozen=True)
class Told:
    """A line of `there/telling.py`, which says what its parts mean."""

    views: Mapping[str, View] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    detail: tuple[int, Detail] | None = None
    rows: tuple[tuple[str, str], ...] | None = None
    over: bool = False
