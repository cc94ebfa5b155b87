"""A table as a value: columns and rows; as text of any width, in styles, or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torusrun.orchestrator.base.terminal.plain import cut, display_width, wrapped

GAP = "  "
EMPTY = "-"
LEAST_LAST = 12  # the last column gets at least this width, or another column is left out
LEAST_NAME = 16
NUMERIC = "0123456789+-"  # first characters of numbers

Row = TypeVar("Row")
Line = list[tuple[str, str]]  # (text, style) from left to right


@dataclass(frozen=True)
class Long:
    """A text of the last column. If too long, `short` or its beginning is shown, and with `below` all of it below."""

    text: str
    short: str = ""
    below: bool = False


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table."""

    title: str | None  # None: the text lacks the column
    value: Callable[[Row], Any]  # in a row; None without a value
    show: Callable[[Any], str] = str
    key: str = ""  # in JSON; '': JSON lacks the column
    right: bool | None = None  # None: numbers are on the right
    left_out: int | None = None  # on a narrow terminal the lowest is left out first; None: never
    style: Callable[[Row], str] = lambda row: ""

    def on_the_right(self, texts: Sequence[str]) -> bool:
        return all(not text or text[0] in NUMERIC for text in texts) if self.right is None else self.right

    def cell(self, row: Row, empty: str) -> Long:
        value = self.value(row)
        return value if isinstance(value, Long) else Long(empty if value is None else self.show(value))


@dataclass(frozen=True)
class Table(Generic[Row]):
    """Rows and their columns. The first column is a name and is never cut; `notes` are lines below a row."""

    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    notes: Callable[[Row], Sequence[str]] = lambda row: ()
    empty: str = EMPTY

    def as_json(self) -> list[dict[str, Any]]:
        """A record for each row."""
        return [{column.key: column.value(row) for column in self.columns if column.key} for row in self.rows]

    def cells(self) -> tuple[list[str], list[list[str]], list[bool]]:
        """(The titles, the whole texts of each row, which columns are on the right), for a page."""
        layout = _Layout(self, None)
        return layout.titles, [[cell.text for cell in cells] for cells in layout.cells], layout.right

    def lines(self, width: int | None = None) -> list[str]:
        """The titles and the rows as text, as in `styled`."""
        return ["".join(text for text, _ in line).rstrip() for line in self.styled(width)]

    def styled(self, width: int | None = None) -> Iterator[Line]:
        """The titles and the rows, in `width` columns of a terminal.

        Without a width nothing is cut, folded or left out. A name longer than its share gets its own line.
        """
        layout = _Layout(self, width)
        yield layout.line(layout.titles)
        for row, cells in zip(self.rows, layout.cells, strict=True):
            yield from layout.row(cells, [column.style(row) for column in layout.columns], self.notes(row))


class _Layout(Generic[Row]):
    """The shown columns: their cells, their widths, and those that fit."""

    def __init__(self, table: Table[Row], width: int | None) -> None:
        self.columns = [column for column in table.columns if column.title is not None]
        self.titles = [column.title or "" for column in self.columns]
        self.cells = [[column.cell(row, table.empty) for column in self.columns] for row in table.rows]
        texts = [*zip(self.titles, *([cell.text for cell in cells] for cells in self.cells), strict=True)]
        self._widths = [max(map(display_width, column)) for column in texts]
        self.right = [c.on_the_right(column[1:]) for c, column in zip(self.columns, texts, strict=True)]
        self._kept = [*range(len(self.columns))]
        self._width, self._room = width, width
        if width is not None:
            share = max(LEAST_NAME, width * 2 // 5)
            self._widths[0] = max((n for n in map(display_width, texts[0]) if n <= share), default=0)
            self._leave_out({n for n, column in enumerate(texts) if {*column[1:]} == {table.empty}}, width)
            self._room = width - self._before_last()

    def _leave_out(self, empty: set[int], width: int) -> None:
        """Leave columns out, empty columns first, until the last has room."""
        lasts = [self.titles[-1], *(cells[-1].short or cells[-1].text for cells in self.cells)]
        room = width - min(LEAST_LAST, max(map(display_width, lasts)))
        order = [(n not in empty, c.left_out, n) for n, c in enumerate(self.columns) if c.left_out is not None]
        for is_filled, _, n in sorted(order):
            if not is_filled or self._before_last() > room:
                self._kept.remove(n)

    def _before_last(self) -> int:
        return sum(self._widths[n] + len(GAP) for n in self._kept[:-1])

    def row(self, cells: Sequence[Long], styles: Sequence[str], notes: Sequence[str]) -> Iterator[Line]:
        """The lines of a row and of its notes."""
        texts, last = [cell.text for cell in cells], cells[-1]
        if self._room is not None and display_width(last.text) > self._room:
            notes = [last.text, *notes] if last.below else notes
            texts[-1] = last.short or last.text
        if display_width(texts[0]) > self._widths[0]:
            yield [(texts[0], styles[0])]
            texts[0] = ""
        yield self.line(texts, styles)
        for note in notes:
            yield from ([(line, "")] for line in wrapped(note, self._width))

    def line(self, texts: Sequence[str], styles: Sequence[str] = ()) -> Line:
        """A line of these texts, with the last cut."""
        *padded, last = [(self._padded(n, texts[n]), styles[n] if styles else "") for n in self._kept]
        return [*((text + GAP, style) for text, style in padded), (cut(last[0], self._room), last[1])]

    def _padded(self, n: int, text: str) -> str:
        if n == len(self.columns) - 1 and self._room is not None:
            return text
        space = " " * (self._widths[n] - display_width(text))
        return space + text if self.right[n] else text + space
