"""Many runs on a screen: what of them fits, those that need attention first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from orchestrator.base.states import State
from orchestrator.base.terminal.colours import of
from orchestrator.base.terminal.columns import EMPTY, Column, TableRow, table
from orchestrator.base.terminal.plain import plain
from orchestrator.base.terminal.width import CUT, cut
from orchestrator.runs.state.attention import counts
from orchestrator.runs.state.listing import folded, result, steps
from orchestrator.runs.state.pace import short
from orchestrator.runs.state.view import View

COLUMNS = (
    Column("RUN"),
    Column("STATE"),
    Column("STEP", right=True, left_out=4),
    Column("IMAGES/S", right=True, left_out=1),
    Column("LOSS/ACC", right=True, left_out=2),
    Column("ETA", right=True, left_out=3),
)
LAST = "WHERE"
LEAST_NAME = 16


@dataclass(frozen=True)
class Window:
    """Which rows are shown: from `top` on, `rows` of them, one of them selected unless `selected` is None."""

    top: int
    rows: int
    selected: int | None = None

    def around(self, selected: int | None, rows: int, of_all: int) -> Window:
        """The window that shows the selected row and moves as little as it can."""
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
    titles, *rows = table(COLUMNS, LAST, [_row(view, width) for view in shown], width)
    found = [head, Text(cut(titles, width), "dim")]
    for n, (view, row) in enumerate(zip(shown, rows, strict=True), window.top):
        text = Text(cut(row, width))
        if (at := row.find(f" {view.state.value}")) >= 0:
            text.stylize(of(view.state), at, at + 1 + len(view.state.value))
        if n == window.selected:
            text.stylize("reverse")
        found.append(text)
    return found


def _row(view: View, width: int) -> TableRow:
    speed = view.images_per_s if view.state is State.RUNNING else None
    cells = (
        shortened(plain(view.run), max(LEAST_NAME, width * 2 // 5)),
        view.state.value,
        steps(view) or EMPTY,
        EMPTY if speed is None else f"{speed:,.0f}",
        result(view) or EMPTY,
        EMPTY if view.eta_s is None else short(view.eta_s),
    )
    where, remarks = folded(view.hosts), plain(view.remarks)
    return TableRow(cells, (remarks or where) if view.state is not State.RUNNING or view.pause else where or remarks)


def shortened(name: str, width: int) -> str:
    """A name with its middle left out: its beginning says which run it is, and so does its end."""
    if len(name) <= width:
        return name
    end = (width - len(CUT)) // 2
    return name[: width - len(CUT) - end] + CUT + name[len(name) - end :]
