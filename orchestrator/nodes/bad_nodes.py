"""The memory of bad nodes as a table: one row for each host that was blamed, with the evidence below it."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.base.shown.numbers import minute
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.bad_nodes.bad_node import BlamedNode
from torusrun.orchestrator.run.state.pace import short
from torusrun.training.counted import counted


def listing(nodes: Sequence[BlamedNode], now_s: float) -> Table[BlamedNode]:
    """The table of these hosts as of `now_s` (of time.time())."""

    def left_out(node: BlamedNode) -> str:
        if node.until_s is None:
            return f"not yet: after {counted(node.more, 'more end')}"
        return f"for {short(node.until_s - now_s)}"

    columns: tuple[Column[BlamedNode], ...] = (
        Column("HOST", lambda node: plain(node.host), key="host", right=False),
        Column("SITE", lambda node: plain(node.site), key="site", right=False),
        Column("WHY", lambda node: plain(node.reason), key="reason", right=False),
        Column("TIMES", lambda node: node.count, key="count", right=True, left_out=2),
        Column("LAST", lambda node: minute(node.last_s), right=False),
        Column("LEFT OUT", left_out, right=False),
        Column(None, lambda node: node.bad, key="bad"),
        Column(None, lambda node: node.evidence, key="evidence"),
        Column(None, lambda node: node.first_s, key="first_s"),
        Column(None, lambda node: node.last_s, key="last_s"),
        Column(None, lambda node: node.until_s, key="until_s"),
        Column(None, lambda node: list(node.runs), key="runs"),
    )
    return Table(columns, nodes, _notes)


def _notes(node: BlamedNode) -> list[str]:
    runs = f" ({', '.join(map(plain, node.runs))})" if node.runs else ""
    return [f"  {plain(node.evidence)}{runs}"] if node.evidence or runs else []
