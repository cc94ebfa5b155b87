"""Many runs on a screen: those that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.text import Text

from torusrun.orchestrator.base.shown.numbers import thousands
from torusrun.orchestrator.base.shown.table import LEAST_NAME, Column, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import CUT, cut, plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.state.view import View, counts
from torusrun.orchestrator.show.listing import ETA, RESULT, STATE, STEP

Row = TypeVar("Row")


@dataclass(frozen=True)
class Window:
    """The visible rows: `rows` of them from `top`, one of them selected unless `selected` is None."""

    top: int
    rows: int
    selected: int | None = None

    def around(self, selected: int | None, rows: int, of_all: int) -> Window:
        """The window that shows the selected row and moves as little as possible."""
        top = self.top
        if selected is not None:
            top = min(max(top, selected - rows + 1), selected)
        return Window(max(min(top, of_all - rows), 0), rows, selected)

    def words(self, of_all: int) -> str:
        """'rows 3-7 of 16', 'row 1 of 1', or 'no rows'."""
        last = min(self.top + self.rows, of_all)
        shown = f"s {self.top + 1}-{last}" if last > self.top + 1 else f" {last}"
        return f"row{shown} of {of_all}" if of_all else "no rows"


def lines(views: Sequence[View], window: Window, width: int) -> list[Text]:
    """The counts, the titles and the rows of the window, each in at most `width` columns. `views` are in order."""
    head = Text(cut(counts(views), width), "bold")
    shown = views[window.top : window.top + max(window.rows, 0)]
    if not shown:
        return [head]
    found = [head, *drawn_rows(_table(shown, max(LEAST_NAME, width * 2 // 5)), width, "dim")]
    if window.selected is not None and window.top <= window.selected < window.top + len(shown):
        found[2 + window.selected - window.top].stylize("reverse")
    return found


def _table(views: Sequence[View], longest: int) -> Table[View]:
    """The table, with names of at most `longest` columns, so that each run has one line."""
    columns: tuple[Column[View], ...] = (
        Column("RUN", lambda view: shortened(plain(view.run), longest), right=False),
        STATE,
        replace(STEP, left_out=4),
        Column("IMAGES/S", _speed, thousands, right=True, left_out=1),
        replace(RESULT, left_out=2),
        replace(ETA, left_out=3),
        Column("WHERE", _where, right=False),
    )
    return Table(columns, views)


def _speed(view: View) -> float | None:
    return view.images_per_s if view.state is State.RUNNING else None


def _where(view: View) -> str:
    where, remarks = folded(view.hosts), plain(view.remarks)
    return (remarks or where) if view.state is not State.RUNNING or view.pause else where or remarks


def shortened(name: str, width: int) -> str:
    """A name with its middle left out: its beginning and its end identify the run."""
    if len(name) <= width:
        return name
    end = (width - len(CUT)) // 2
    return name[: width - len(CUT) - end] + CUT + name[len(name) - end :]


def drawn_rows(table: Table[Row], width: int, head: str) -> list[Text]:
    """The titles in the style `head` and the rows in their columns' styles, each line in at most `width` columns."""
    found = []
    for line in table.styled(width):
        text, at = Text(cut("".join(part for part, _ in line).rstrip(), width)), 0
        for part, style in line:
            text.stylize(style, at, at + len(part))
            at += len(part)
        found.append(text)
    found[0].stylize(head)
    return found
