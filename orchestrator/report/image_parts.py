"""The parts of an image before it is built, as `torusrun image resolve` shows them."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.images.lookups.parts import ImagePart
from torusrun.orchestrator.planning.image.resolved import Resolved
from torusrun.orchestrator.report.table import Column, Table
from torusrun.training.counted import counted

MIB = 2**20
FEWEST_LISTED_BYTES = MIB  # smaller parts that the image file does not name are counted


def lines(found: Resolved, width: int | None = None) -> list[str]:
    """A table of the larger parts, then what is open, then the sizes."""
    columns: list[Column[ImagePart]] = [
        Column("WHAT", lambda part: part.kind, right=False),
        Column("NAME", lambda part: part.name, right=False),
        Column("VERSION", lambda part: part.version[:24] or None, right=False),
        Column("MIB", lambda part: None if part.size_bytes is None else part.size_bytes / MIB, "{:.1f}".format),
        Column("", lambda part: "not resolved" if part.open else "needed" if part.needed else "", right=False),
    ]
    small = [p for p in found.parts if p.needed and not p.open and (p.size_bytes or 0) < FEWEST_LISTED_BYTES]
    shown = [part for part in found.parts if part not in small]
    return [*Table(columns, shown).lines(width), *_small(small), *_open(found), *_later(found), *_sizes(found)]


def _small(small: list[ImagePart]) -> Iterator[str]:
    if small:
        total = sum(part.size_bytes or 0 for part in small) / MIB
        yield f"and {counted(len(small), 'smaller part')} that these need, {total:.1f} MiB (--json names them)"


def _open(found: Resolved) -> Iterator[str]:
    left = [part for part in found.parts if part.open]
    if not left:
        yield "all parts are resolved"
        return
    yield f"not resolved from here, {len(left)} of {counted(len(found.parts), 'part')}:"
    by_reason: dict[str, list[str]] = {}
    for part in left:
        by_reason.setdefault(part.open, []).append(part.name)
    yield from (f"  {', '.join(names)}: {why}" for why, names in by_reason.items())


def _later(found: Resolved) -> Iterator[str]:
    if found.later:
        yield "known later:"
        yield from (f"  {line}" for line in found.later)


def _sizes(found: Resolved) -> Iterator[str]:
    if found.estimated_bytes:
        without = f", without {', '.join(found.unknown)}" if found.unknown else ""
        yield f"size: about {found.estimated_bytes / MIB:,.0f} MiB, estimated from what is downloaded{without}"
    else:
        yield "size: not known"
    if built := found.built:
        yield f"size: {built.size_bytes / MIB:,.0f} MiB, measured: {built.path}"
