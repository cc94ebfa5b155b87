"""The answers of a login node as records, checked strictly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orchestrator.base.json_files import parsed
from orchestrator.base.terminal.plain import plain
from orchestrator.base.typed import record_of
from orchestrator.remote.links.host import BadAnswer, LoginHost
from orchestrator.report.screen.detail import Detail
from orchestrator.runs.state.view import View

MOST_PARTS = 1_000_000  # lists and objects in an answer
LONGEST_WHY = 200  # characters of the description of a bad answer

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class NewOutput:
    """The numbers of new bytes of a call's output and of its errors, and its exit code if it has ended."""

    out: int
    err: int
    exit: int | None
    gone: bool


@dataclass(frozen=True)
class News:
    """The news of watched runs; `login_node/watching.py` describes the parts."""

    views: Mapping[str, View | None] = field(default_factory=dict)
    detail: tuple[int, Detail] | None = None
    rows: tuple[tuple[str, str], ...] | None = None
    over: bool = False


def received(host: LoginHost, kind: type[Kind], sent: Any, text: Callable[[str], str] = plain) -> Kind:
    """The value in a login node's answer: JSON text, or the form that `record_of` takes. Raises BadAnswer."""
    try:
        found: Kind = record_of(kind, _value(sent) if isinstance(sent, (bytes, bytearray)) else sent, text)
    except ValueError as error:
        why = plain(str(error))[:LONGEST_WHY]
        raise BadAnswer(f"{host.address}: its answer is not what torusrun sends: {why}") from None
    return found


def _value(content: bytes | bytearray) -> Any:
    """The value of this JSON. Raises ValueError, also if it would take many times as much memory as bytes."""
    if content.count(b"[") + content.count(b"{") > MOST_PARTS:
        raise ValueError("it has too many parts")
    return parsed(bytes(content))
