"""Bars of time: the attempts of a run on a time line, its time by use, and the step times of its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from torusrun.orchestrator.base.shown import svg
from torusrun.orchestrator.base.shown.numbers import moment, ms
from torusrun.orchestrator.base.templates import Markup
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.folder.at_work import RankSteps
from torusrun.orchestrator.run.folder.events import Ended
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.state.account import USES, Account
from torusrun.orchestrator.run.state.attempts import AttemptFacts
from torusrun.orchestrator.run.state.pace import duration
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.orchestrator.show.screen.nodes import remark

LEAST = 0.002  # of the width: a part that is there is visible


@dataclass(frozen=True)
class BarPart:
    """A part of a bar from one share of the width to another, its CSS class, and what hovering over it shows."""

    begins: float
    ends: float
    kind: str
    title: str


def bar(parts: Iterable[BarPart], height: int) -> Markup:
    drawn = "".join(map(_rect, parts))
    return Markup(svg.element("svg", drawn, **{"class": "bar", "width": "100%", "height": height, "role": "img"}))


def _rect(part: BarPart) -> str:
    width = max(part.ends - part.begins, LEAST)
    begins = min(max(part.begins, 0.0), 1.0 - LEAST)
    title = svg.element("title", escape(plain(part.title)))
    size = {"x": f"{begins:.3%}", "width": f"{min(width, 1 - begins):.3%}", "height": "100%"}
    return svg.element("rect", title, **{"class": part.kind}, **size)


LANE, WHOLE = 14, 26  # heights
CUT = 0.006  # the width of the mark at an early end
MOST = 20  # attempts that are shown
LEAST_SHARE = 0.0005  # of the time: a use with less is not shown


@dataclass(frozen=True)
class Lane:
    """An attempt: its times as a bar over the whole time of its run, and its end in words."""

    number: int
    state: str
    cause: str
    words: str
    facts: str
    bar: Markup


@dataclass(frozen=True)
class Use:
    """Seconds of one use, and their share of the time of the run."""

    name: str
    took: str
    seconds: str
    percent: str


@dataclass(frozen=True)
class TimeUse:
    """`ends` are the times at both ends of the time line; `hidden` is the number of attempts that are not shown."""

    lanes: list[Lane]
    hidden: int
    ends: tuple[str, str]
    whole: Markup
    uses: list[Use]
    words: list[str]


def time_use(facts: RunFacts) -> TimeUse | None:
    """The attempts and the time of a run; None if they are not known."""
    account = facts.account
    if not account or not account.attempts or account.total_s <= 0:
        return None
    first_s = account.attempts[0].submitted_s
    last_s = max(first_s + account.total_s, account.attempts[-1].until_s)
    shown = account.attempts[-MOST:]
    return TimeUse(
        [_lane(facts, one, first_s, last_s) for one in shown],
        len(account.attempts) - len(shown),
        (moment(first_s), moment(last_s)),
        bar(_whole(account), WHOLE),
        [_use(account, use) for use in _used(account)],
        [*_productive(account)],
    )


def _lane(facts: RunFacts, one: AttemptFacts, first_s: float, last_s: float) -> Lane:
    end = last(list(facts.events), Ended, one.attempt)
    began = f"began {moment(one.begun_s)}" if one.begun_s is not None else "did not begin"
    took = f"took {duration(one.took_s)}" if one.took_s is not None else ""
    resumed = f"from {one.resumes.rpartition('/')[2]}" if one.resumes else ""
    said = [f"job {one.job}" if one.job else "", began, took, resumed, f"on {folded(one.hosts)}" if one.hosts else ""]
    words = facts.shown(end.reason) if end else ""
    drawn = bar(_parts(one, first_s, last_s), LANE)
    return Lane(one.attempt, one.state.value, one.cause, words, facts.shown(", ".join(filter(None, said))), drawn)


def _parts(one: AttemptFacts, first_s: float, last_s: float) -> Iterator[BarPart]:
    """The time in the queue, and the time from its start to its end."""
    whole_s = last_s - first_s
    begun_s = one.until_s if one.begun_s is None else one.begun_s
    at = [(moment_s - first_s) / whole_s for moment_s in (one.submitted_s, begun_s, one.until_s)]
    if begun_s > one.submitted_s:
        yield BarPart(at[0], at[1], "queue", f"queue, {duration(begun_s - one.submitted_s)}")
    if one.begun_s is not None:
        yield BarPart(at[1], at[2], "at-work", f"attempt {one.attempt}, {duration(one.until_s - one.begun_s)}")
        if one.cause not in ("", "done"):
            yield BarPart(at[2] - CUT, at[2], "cut", f"ended early: {one.cause}")


def _used(account: Account) -> list[str]:
    return [use for use in USES if account.seconds.get(use, 0.0) > LEAST_SHARE * account.total_s]


def _whole(account: Account) -> Iterator[BarPart]:
    """The time of the run as one bar: its uses, in the order of USES."""
    at = 0.0
    for name in _used(account):
        use, share = _use(account, name), account.seconds[name] / account.total_s
        yield BarPart(at, at + share, name, f"{name} {use.took}, {use.percent}")
        at += share


def _use(account: Account, use: str) -> Use:
    seconds = account.seconds[use]
    return Use(use, duration(seconds), f"{seconds:,.1f}", f"{seconds / account.total_s:.1%}")


def _productive(account: Account) -> Iterator[str]:
    if account.ettr is not None and account.since_submit is not None:
        since = f"{account.since_submit:.1%} since its submission"
        yield f"Productive: {account.ettr:.1%} of the time since its first start, {since}."


ROW_HEIGHT = 14
MOST_RANKS = 64  # rows


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
    of_hosts = len(known) > MOST_RANKS
    if of_hosts:
        slowest = [(node.host, node.slowest) for node in facts.nodes if node.slowest]
        known = sorted(slowest, key=lambda found: -(found[1].computed_s or found[1].step_s))
    slow = facts.slow.words if facts.slow else remark(facts.nodes)
    last_step = max(rank.step for _, rank in known)
    rows = _rank_rows(facts, known[:MOST_RANKS])
    return RankTimes(rows, facts.shown(slow), of_hosts, len(known[MOST_RANKS:]), last_step)


def _rank_rows(facts: RunFacts, known: Sequence[tuple[str, RankSteps]]) -> list[RankRow]:
    longest_s = max(rank.step_s for _, rank in known) or 1.0
    return [
        RankRow(
            f"rank {rank.rank}",
            facts.shown(host),
            f"{ms(rank.step_s)} ms",
            "unknown" if rank.waited is None else f"{rank.waited:.0%}",
            bar(_rank_parts(rank, longest_s), ROW_HEIGHT),
        )
        for host, rank in known
    ]


def _rank_parts(rank: RankSteps, longest_s: float) -> list[BarPart]:
    whole = rank.step_s / longest_s
    if rank.computed_s is None:
        return [BarPart(0.0, whole, "compute", f"step {ms(rank.step_s)} ms")]
    computed = rank.computed_s / longest_s
    waits = BarPart(computed, whole, "waits", f"waited {ms(rank.step_s - rank.computed_s)} ms")
    return [BarPart(0.0, computed, "compute", f"computed {ms(rank.computed_s)} ms"), waits]
