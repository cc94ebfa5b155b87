"""One run on a screen: progress, loss, nodes, the first error and the end of rank 0's log, as far as they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from torusrun.orchestrator.base.shown.curve import ASCII, BLOCKS, LABEL, Axis, Curve
from torusrun.orchestrator.base.shown.numbers import number
from torusrun.orchestrator.base.terminal.output import REMARK
from torusrun.orchestrator.base.terminal.plain import cut, plain, wrapped
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.progress_text import figures
from torusrun.orchestrator.show.screen import nodes as of_nodes
from torusrun.orchestrator.show.screen.detail import Detail
from torusrun.orchestrator.show.screen.live import Line
from torusrun.orchestrator.show.screen.many import Window, drawn_rows
from torusrun.orchestrator.show.screen.nodes import NodeHeard
from torusrun.training.counted import counted

CURVE_ROWS = 6
LEAST_CURVE_ROWS = 2
MOST_REMARKS = 3


def lines(view: View, detail: Detail, width: int, height: int, *, blocks: bool = True) -> list[RenderableType]:
    """At most `height` lines of at most `width` columns; `blocks`: the terminal has block characters."""
    bare = replace(view, loss=None, eta_s=None, accuracy=None, images_per_s=None, age_s=None, reason="", pause="")
    found: list[RenderableType] = [Line(bare, "", "\n")]
    found += [Text(cut(text, width)) for text in _facts(view) if text]
    found += [Text(cut(text, width), REMARK) for text in _wrapped(plain(view.remarks), width)[:MOST_REMARKS]]
    room = height - len(found)
    for part in (_errors(detail.error, width, room // 2), _nodes(detail.nodes, width, room // 3)):
        found += part
        room -= len(part)
    found += (part := _curve(detail.losses, width, min(room * 2 // 3, CURVE_ROWS + 2), blocks))
    found += _log(detail.said, width, room - len(part))
    return found[: max(height, 0)]


def _facts(view: View) -> list[str]:
    grid = " x ".join(map(str, view.grid)) if view.grid else ""
    parts = (
        f"attempt {view.attempt}",
        f"job {view.job}" if view.job else "",
        f"site {view.site}" if view.site else "",
        f"grid {grid}" if grid else "",
        f"on {folded(view.hosts)}" if view.hosts else "",
    )
    known = {name: text for name, text in figures(view).items() if name != "step"}
    return [plain(", ".join(filter(None, parts))), ", ".join(known.values())]


def _wrapped(text: str, width: int) -> list[str]:
    return [line.strip() for line in wrapped(text, width)] if text else []


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
    remark = room > 3 and of_nodes.remark(nodes)
    most = room - 2 if remark else room - 1
    shown = nodes if len(nodes) <= most else nodes[: max(most - 1, 1)]
    texts = drawn_rows(of_nodes.table(shown, width), width, "bold")
    if remark:
        texts.append(Text(cut(remark, width), REMARK))
    if len(shown) < len(nodes) and len(texts) < room:
        texts.append(Text(cut(f"and {len(nodes) - len(shown)} more", width), "dim"))
    return texts


def page(nodes: Sequence[NodeHeard], window: Window, width: int) -> tuple[list[Text], int]:
    """(The rows of a window on all nodes and their ranks, below a remark and titles; the number of rows)."""
    if not nodes:
        return [Text(cut("no node is at work", width))], 0
    titles, *rows = drawn_rows(of_nodes.table(nodes, width, ranks=True), width, "bold")
    shown = rows[window.top : window.top + max(window.rows, 0)]
    head = of_nodes.remark(nodes) or counted(len(nodes), "node")
    return [Text(cut(head, width), REMARK), titles, *shown], len(rows)


def _curve(losses: Sequence[tuple[float, float]], width: int, room: int, blocks: bool) -> list[Text]:
    """The curve, with the range of the loss on the left and that of the steps below."""
    height, columns = room - 1, width - LABEL
    if len(losses) < 2 or height < LEAST_CURVE_ROWS or columns < LABEL:
        return []
    curve = Curve({"loss": losses}, Axis(lambda step: f"step {step:.0f}"), Axis(number))
    rows = curve.area(columns, height, BLOCKS if blocks else ASCII)
    return [*map(Text, curve.framed(rows)), Text(cut(curve.foot("loss", max(map(len, rows))), width), "dim")]


def _log(said: Sequence[str], width: int, room: int) -> list[Text]:
    return _titled("log of rank 0", said[max(len(said) - room + 1, 0) :], width) if room > 1 else []
