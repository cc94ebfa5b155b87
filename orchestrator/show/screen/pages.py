"""The pages of the screen: many runs in a table, one run with its details, and all its nodes; as far as they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.text import Text

from torusrun.orchestrator.base.shown.curve import ASCII, BLOCKS, LABEL, Curve
from torusrun.orchestrator.base.shown.numbers import number, steps, thousands
from torusrun.orchestrator.base.shown.table import LEAST_NAME, Column, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.output import REMARK
from torusrun.orchestrator.base.terminal.plain import CUT, cut, plain, wrapped
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.state.view import View, counts
from torusrun.orchestrator.show.listing import ETA, RESULT, STATE, STEP
from torusrun.orchestrator.show.screen import nodes as node_table
from torusrun.orchestrator.show.screen.detail import Detail
from torusrun.orchestrator.show.screen.nodes import NodeHeard
from torusrun.orchestrator.show.screen.printed import figures
from torusrun.training.counted import counted

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


def of_many(views: Sequence[View], window: Window, width: int) -> list[Text]:
    """The counts, the titles and the rows of the window, each in at most `width` columns. `views` are in order."""
    head = Text(cut(counts(views), width), "bold")
    shown = views[window.top : window.top + max(window.rows, 0)]
    if not shown:
        return [head]
    lines = [head, *_rows(_table(shown, max(LEAST_NAME, width * 2 // 5)), width, "dim")]
    if window.selected is not None and window.top <= window.selected < window.top + len(shown):
        lines[2 + window.selected - window.top].stylize("reverse")
    return lines


def _table(views: Sequence[View], longest: int) -> Table[View]:
    """The table, with names of at most `longest` columns, so that each run has a single line."""

    def speed(view: View) -> float | None:
        return view.images_per_s if view.state is State.RUNNING else None

    columns: tuple[Column[View], ...] = (
        Column("RUN", lambda view: shortened(plain(view.run), longest), right=False),
        STATE,
        replace(STEP, left_out=4),
        Column("IMAGES/S", speed, thousands, right=True, left_out=1),
        replace(RESULT, left_out=2),
        replace(ETA, left_out=3),
        Column("WHERE", _where, right=False),
    )
    return Table(columns, views)


def _where(view: View) -> str:
    where, remarks = folded(view.hosts), plain(view.remarks)
    return (remarks or where) if view.state is not State.RUNNING or view.pause else where or remarks


def shortened(name: str, width: int) -> str:
    """A name with its middle left out: its beginning and its end identify the run."""
    if len(name) <= width:
        return name
    end = (width - len(CUT)) // 2
    return name[: width - len(CUT) - end] + CUT + name[len(name) - end :]


def _rows(table: Table[Row], width: int, head: str) -> list[Text]:
    """The titles in the style `head` and the rows in their columns' styles, each line in at most `width` columns."""
    rows = []
    for line in table.styled(width):
        text, at = Text(cut("".join(part for part, _ in line).rstrip(), width)), 0
        for part, style in line:
            text.stylize(style, at, at + len(part))
            at += len(part)
        rows.append(text)
    rows[0].stylize(head)
    return rows


LEAST_BAR, MOST_BAR = 10, 40


@dataclass(frozen=True)
class Head:
    """The name, the state, the bar and the step of a run in one line; a narrow line has no name."""

    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        view, style = self.view, self.view.state.colour
        parts = [Text(plain(view.run), "bold"), Text(view.state.value, style)]
        bar = view.step is not None and bool(view.total_steps)
        if bar:  # the step has the same width from step to step, so that the bar keeps its width
            parts.append(Text(f"step {view.step:>{len(str(view.total_steps))}}/{view.total_steps}"))
        elif view.step is not None:
            parts.append(Text(f"step {steps(view.step, view.total_steps)}"))
        room = options.max_width - sum(part.cell_len + 1 for part in parts)
        if bar and room < LEAST_BAR:
            room += parts.pop(0).cell_len + 1
        if bar and (room := min(room, MOST_BAR)) >= LEAST_BAR:
            whole = ProgressBar(view.total_steps or 0, view.step or 0, room, complete_style=style, finished_style=style)
            drawn = Text.assemble(*((segment.text, segment.style or "") for segment in console.render(whole)))
            drawn.truncate(room, pad=True)  # a terminal without colours gets no remaining part
            parts.insert(-1, drawn)
        yield Text(" ", no_wrap=True, overflow="ellipsis").join(parts)


CURVE_ROWS = 6
LEAST_CURVE_ROWS = 2
MOST_REMARKS = 3


def of_one(view: View, detail: Detail, width: int, height: int, *, blocks: bool = True) -> list[RenderableType]:
    """At most `height` lines of at most `width` columns; `blocks`: the terminal has block characters."""
    lines: list[RenderableType] = [Head(view)]
    lines += [Text(cut(text, width)) for text in _facts(view) if text]
    remarks = list(wrapped(plain(view.remarks), width)) if view.remarks else []
    lines += [Text(cut(text.strip(), width), REMARK) for text in remarks[:MOST_REMARKS]]
    room = height - len(lines)
    for part in (_errors(detail.error, width, room // 2), _nodes(detail.nodes, width, room // 3)):
        lines += part
        room -= len(part)
    lines += (part := _curve(detail.losses, width, min(room * 2 // 3, CURVE_ROWS + 2), blocks))
    lines += _log(detail.log, width, room - len(part))
    return lines[: max(height, 0)]


def _facts(view: View) -> list[str]:
    parts = (
        f"attempt {view.attempt}",
        f"job {view.job}" if view.job else "",
        f"site {view.site}" if view.site else "",
        f"grid {Grid(view.grid)}" if view.grid else "",
        f"on {folded(view.hosts)}" if view.hosts else "",
    )
    known = {name: text for name, text in figures(view).items() if name != "step"}
    return [plain(", ".join(filter(None, parts))), ", ".join(known.values())]


def _titled(title: str, texts: Sequence[str], width: int, style: str = "") -> list[Text]:
    return [Text(cut(title, width), "bold"), *(Text(cut(f"  {text}", width), style) for text in texts)] if texts else []


def _errors(error: Sequence[str], width: int, room: int) -> list[Text]:
    """The first line and the last ones: the failed rank, and the exception."""
    if room < 2 or not error:
        return []
    kept = list(error) if len(error) < room else [error[0], *error[len(error) - room + 2 :]]
    return _titled("first error", kept[: room - 1], width, "red")


def _nodes(nodes: Sequence[NodeHeard], width: int, room: int) -> list[Text]:
    """As many nodes as fit: silent nodes and nodes that delay others come first."""
    if room < 2 or not nodes:
        return []
    shown = nodes if len(nodes) <= room - 1 else nodes[: max(room - 2, 1)]
    texts = _rows(node_table.table(shown, width), width, "bold")
    if len(shown) < len(nodes) and len(texts) < room:
        texts.append(Text(cut(f"and {len(nodes) - len(shown)} more", width), "dim"))
    return texts


def of_nodes(nodes: Sequence[NodeHeard], window: Window, width: int) -> tuple[list[Text], int]:
    """(The rows of a window on all nodes and their ranks, below their number and titles; the number of rows)."""
    if not nodes:
        return [Text(cut("no node is at work", width))], 0
    titles, *rows = _rows(node_table.table(nodes, width, ranks=True), width, "bold")
    shown = rows[window.top : window.top + max(window.rows, 0)]
    return [Text(cut(counted(len(nodes), "node"), width), REMARK), titles, *shown], len(rows)


def _curve(losses: Sequence[tuple[float, float]], width: int, room: int, blocks: bool) -> list[Text]:
    """The curve, with the range of the loss on the left and that of the steps below."""
    height, columns = room - 1, width - LABEL
    if len(losses) < 2 or height < LEAST_CURVE_ROWS or columns < LABEL:
        return []
    curve = Curve(losses, lambda step: f"step {step:.0f}", number)
    rows = curve.area(columns, height, BLOCKS if blocks else ASCII)
    return [*map(Text, curve.framed(rows)), Text(cut(curve.foot("loss", max(map(len, rows))), width), "dim")]


def _log(log: Sequence[str], width: int, room: int) -> list[Text]:
    return _titled("log of rank 0", log[max(len(log) - room + 1, 0) :], width) if room > 1 else []
