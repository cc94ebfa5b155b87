"""Rows of text in aligned columns that fit a terminal. The first column is a name and is never cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.base.terminal.width import cut, display_width, wrapped

GAP = "  "
EMPTY = "-"
LEAST_LAST = 12  # the last column gets that much, or another one is left out
LEAST_NAME = 16


@dataclass(frozen=True)
class Column:
    """A column; on a narrow terminal the one with the lowest `left_out` goes first, one without it never."""

    title: str
    right: bool = False
    left_out: int | None = None


@dataclass(frozen=True)
class TableRow:
    """One row: the texts of all columns but the last, the last one, and further lines to show below.

    Where `last` does not fit, `instead` stands in its place ('' for `last` itself, cut), and `last` is told in a line
    below if it is to be `told_whole`.
    """

    cells: tuple[str, ...]
    last: str
    instead: str = ""
    told_whole: bool = False
    notes: tuple[str, ...] = ()


def table(columns: Sequence[Column], last: str, rows: Sequence[TableRow], width: int | None) -> list[str]:
    """The lines of a table of these columns, and of one with the title `last`, in `width` columns of a terminal.

    Without a width nothing is cut, folded or left out. A name longer than its share has a line to itself.
    """
    share = None if width is None else max(LEAST_NAME, width * 2 // 5)
    widths = _widths(columns, rows, share)
    kept = list(range(len(columns)))
    if width is not None:
        wanted = min(LEAST_LAST, max(display_width(text) for row in rows for text in (last, row.instead or row.last)))
        kept = _kept(columns, rows, widths, width - wanted)
    room = None if width is None else width - sum(widths[n] + len(GAP) for n in kept)
    titles = tuple(column.title for column in columns)
    shown = [_line(columns, titles, cut(last, room), widths, kept)]
    for row in rows:
        shown += _shown(columns, row, widths, kept, room, width)
    return shown


def _widths(columns: Sequence[Column], rows: Sequence[TableRow], share: int | None) -> list[int]:
    widths = [
        max(display_width(text) for text in (c.title, *(row.cells[n] for row in rows))) for n, c in enumerate(columns)
    ]
    if share is not None:
        names = [display_width(row.cells[0]) for row in rows]
        widths[0] = max(len(columns[0].title), *(name for name in names if name <= share), 0)
    return widths


def _kept(columns: Sequence[Column], rows: Sequence[TableRow], widths: Sequence[int], most: int) -> list[int]:
    """The columns to show in `most` columns of the terminal. Those that are empty are left out first."""
    kept = [n for n, c in enumerate(columns) if c.left_out is None or any(row.cells[n] != EMPTY for row in rows)]
    for n in sorted((n for n in kept if columns[n].left_out is not None), key=lambda n: columns[n].left_out or 0):
        if sum(widths[k] + len(GAP) for k in kept) > most:
            kept.remove(n)
    return kept


def _shown(
    columns: Sequence[Column],
    row: TableRow,
    widths: Sequence[int],
    kept: Sequence[int],
    room: int | None,
    width: int | None,
) -> Iterator[str]:
    """The lines of one row."""
    cells, last, notes = row.cells, row.last, row.notes
    if room is not None and display_width(last) > room:
        notes = (last, *notes) if row.told_whole else notes
        last = cut(row.instead or last, room)
    if display_width(cells[0]) > widths[0]:
        yield cells[0]
        cells = ("", *cells[1:])
    yield _line(columns, cells, last, widths, kept)
    for note in notes:
        yield from wrapped(note, width)


def _line(
    columns: Sequence[Column], cells: Sequence[str], last: str, widths: Sequence[int], kept: Sequence[int]
) -> str:
    padded = []
    for n in kept:
        space = " " * (widths[n] - display_width(cells[n]))
        padded.append(space + cells[n] if columns[n].right else cells[n] + space)
    return GAP.join([*padded, last]).rstrip()
