"""Reads the metrics that rank 0 recorded. If an attempt repeats a step after a resume, its newer row counts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.base.whole_lines import last_lines
from torusrun.training.reporting.events import COUNTS, LARGEST, LISTS, NUMBERS, START, STEP

LARGEST_BYTES = 1 << 30
LARGEST_LINE = 1 << 20  # a longer line is read in pieces, each of which is damaged


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """All metrics in order, one after another, so that they are not in memory together. Raises as `read` does."""
    try:
        with open(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST_BYTES:
                raise SiteError(f"{path}: this is larger than {LARGEST_BYTES >> 20} MiB, and is not read")
            yield from filter(None, map(row_of, iter(lambda: file.readline(LARGEST_LINE), b"")))
    except FileNotFoundError:
        return
    except OSError as error:
        raise SiteError(f"{path}: cannot be read: {error.strerror}") from None


def read(path: Path, tail_bytes: int | None = None) -> list[dict[str, Any]]:
    """All metrics in order, or those in the last `tail_bytes`; none if the file is missing.

    Lines that are cut short (a full disk, a kill) or damaged are left out. Raises SiteError if the file is unreadable,
    or if all of more than LARGEST_BYTES is wanted.
    """
    return list(rows(path)) if tail_bytes is None else checked(path, tail_bytes)[0]


def checked(path: Path, tail_bytes: int = LARGEST_BYTES) -> tuple[list[dict[str, Any]], int]:
    """(rows as in `read`, the number of lines left out). A last line without a line break is not counted."""
    try:
        lines, rest = last_lines(path, tail_bytes)
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise SiteError(f"{path}: cannot be read: {error.strerror}") from None
    whole = [row_of(line) for line in lines if line.strip()]
    rows = [row for row in (*whole, row_of(rest)) if row]
    return rows, whole.count(None)


def row_of(line: bytes) -> dict[str, Any] | None:
    """The row in a line; None if it is incomplete or its numbers are invalid."""
    try:
        row = parsed(line)
    except ValueError:
        return None
    if type(row) is not dict or type(row.get("event")) is not str:
        return None
    if row["event"] == STEP and "attempt" not in row:
        return None
    whole = all(type(row[key]) is int and 0 <= row[key] < LARGEST for key in COUNTS if key in row)
    lists = all(type(row[key]) is list and all(map(_is_number, row[key])) for key in LISTS if key in row)
    return row if whole and lists and all(_is_number(row[key]) for key in NUMBERS if key in row) else None


def began_after(rows: Iterable[dict[str, Any]]) -> dict[int, int]:
    """The steps after which each attempt began, from the row of its start, or else from its first step."""
    first_steps: dict[int, int] = {}
    for row in rows:
        if row["event"] in (START, STEP) and type(row.get("attempt")) is int and "step" in row:
            first_steps.setdefault(row["attempt"], row["step"])
    return first_steps


def _is_number(value: object) -> bool:
    """Whether a value is a number within LARGEST, or null (the training writes null for others)."""
    return value is None or (type(value) in (int, float) and -LARGEST < value < LARGEST)  # type: ignore[operator]


def newest(rows: list[dict[str, Any]], *kinds: str) -> dict[str, Any] | None:
    """The last row of any of these events; None if no row is."""
    return next((row for row in reversed(rows) if row.get("event") in kinds), None)
