"""One check: its name, its outcome, its finding, and how to correct a failure."""

from __future__ import annotations

import re
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


def version_line(output: str) -> str:
    """The line that names an MPI in the output of `--version`, else the first line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it prints no version"]
    return next((line for line in lines if re.search("MPI|HYDRA|MPICH", line)), lines[0])


def ok(name: str, finding: str) -> Check:
    return Check(name, "ok", finding)


def warning(name: str, finding: str, mend: str) -> Check:
    return Check(name, "warning", finding, mend)


def failed(name: str, finding: str, mend: str) -> Check:
    return Check(name, "failed", finding, mend)
