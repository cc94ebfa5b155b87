"""One check: its name, its outcome, its finding, and how to correct a failure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Check:
    """A check of a site. `mend` says how to correct it; it is empty only if the outcome is ok."""

    name: str
    outcome: Outcome
    said: str
    mend: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def ok(name: str, said: str) -> Check:
    return Check(name, "ok", said)


def warning(name: str, said: str, mend: str) -> Check:
    return Check(name, "warning", said, mend)


def failed(name: str, said: str, mend: str) -> Check:
    return Check(name, "failed", said, mend)
