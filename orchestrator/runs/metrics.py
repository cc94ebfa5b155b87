"""What rank 0 measured, read back: attempts that repeated a step after a resume replace what it said before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(path: Path, tail_bytes: int | None = None) -> list[dict[str, Any]]:
    """All metrics in order, or those in the last `tail_bytes`.

    Lines that are cut short (a full disk, a kill) are left out; a missing file is empty.
    """
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - (tail_bytes or path.stat().st_size)))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def series(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The rows of one event by step: where attempts overlap, the newest one's row stands."""
    by_step = {row["step"]: row for row in rows if row.get("event") == kind}
    return [by_step[step] for step in sorted(by_step)]


def newest(rows: list[dict[str, Any]], *kinds: str) -> dict[str, Any] | None:
    """The last row written of any of these events."""
    return next((row for row in reversed(rows) if row.get("event") in kinds), None)
