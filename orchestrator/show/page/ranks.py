"""The step times of ranks: how long each computed and how long it waited for others, by its last report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.render.html import Markup
from torusrun.orchestrator.base.shown.numbers import ms
from torusrun.orchestrator.run.folder.node_load import RankSteps
from torusrun.orchestrator.show.page.bars import BarPart, bar
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.orchestrator.show.screen.nodes import remark

HEIGHT = 14
MOST = 64  # rows


@dataclass(frozen=True)
class RankRow:
    """A rank, or the slowest one of a host."""

    name: str
    host: str
    step: str
    waited: str
    bar: Markup


@dataclass(frozen=True)
class RankTimes:
    """`of_hosts`: each row is the slowest rank of a host; `hidden` is the number of hosts that are not shown."""

    rows: list[RankRow]
    slow: str
    of_hosts: bool
    hidden: int
    last_step: int


def rank_times(facts: RunFacts) -> RankTimes | None:
    """The step times; None if no rank reported any."""
    known = [(node.host, rank) for node in facts.nodes if node.load for rank in node.load.ranks]
    if not known:
        return None
    of_hosts = len(known) > MOST
    if of_hosts:
        slowest = [(node.host, node.slowest) for node in facts.nodes if node.slowest]
        known = sorted(slowest, key=lambda found: -(found[1].computed_s or found[1].step_s))
    slow = facts.slow.words if facts.slow else remark(facts.nodes)
    last_step = max(rank.step for _, rank in known)
    return RankTimes(_rows(facts, known[:MOST]), facts.shown(slow), of_hosts, len(known[MOST:]), last_step)


def _rows(facts: RunFacts, known: Sequence[tuple[str, RankSteps]]) -> list[RankRow]:
    longest_s = max(rank.step_s for _, rank in known) or 1.0
    return [
        RankRow(
            f"rank {rank.rank}",
            facts.shown(host),
            f"{ms(rank.step_s)} ms",
            "unknown" if rank.waited is None else f"{rank.waited:.0%}",
            bar(_parts(rank, longest_s), HEIGHT),
        )
        for host, rank in known
    ]


def _parts(rank: RankSteps, longest_s: float) -> list[BarPart]:
    whole = rank.step_s / longest_s
    if rank.computed_s is None:
        return [BarPart(0.0, whole, "compute", f"step {ms(rank.step_s)} ms")]
    computed = rank.computed_s / longest_s
    waits = BarPart(computed, whole, "waits", f"waited {ms(rank.step_s - rank.computed_s)} ms")
    return [BarPart(0.0, computed, "compute", f"computed {ms(rank.computed_s)} ms"), waits]
