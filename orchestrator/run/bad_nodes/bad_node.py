"""The blames of hosts, which are the events of the memory of bad nodes, and which hosts are bad by them.

The file has one JSON line for each event, with its kind as `event` and time.time() as `t`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated

from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.keys.kinds import EXPIRIES_S
from torusrun.orchestrator.place.hosts.hostlist import LONGEST_HOST
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.training.recipe.key import Limits, Pattern

HOST = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_HOST - 1}}}"
HostName = Annotated[str, Pattern("a name of a host", HOST)]  # safe in a scheduler's requests
DAY_S = 86400.0
LONGEST_REASON, LONGEST_EVIDENCE = 60, 300  # characters
SKEW_S = 3600.0  # the clocks of nodes may differ by as much; an event of a later time is not believed
MOST_RUNS = 8

Time = Annotated[float, Limits(at_least=0)]
_End = tuple[str, float]


@dataclass(frozen=True)
class Blamed:
    """A host was blamed by the end of an attempt, by a check of a job, or by its user (`run` is '', `attempt` 0).

    The host is bad from `after` blames by different attempts within `for_s` seconds on, for `for_s` seconds. A blame
    with `after` 1 is certain.
    """

    site: str
    host: HostName
    reason: str
    evidence: str = ""
    run: str = ""
    attempt: int = 0
    after: Annotated[int, Limits(at_least=1, at_most=100)] = 1
    for_s: Annotated[float, EXPIRIES_S] = DAY_S
    time_s: Time = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class Forgiven:
    """Earlier blames of a host do not count any more."""

    site: str
    host: HostName
    time_s: Time = field(default=0.0, kw_only=True)


Event = Blamed | Forgiven
KINDS: dict[str, type[Blamed] | type[Forgiven]] = {"blamed": Blamed, "forgiven": Forgiven}
NAMES = {kind: name for name, kind in KINDS.items()}


def as_line(event: Event) -> str:
    """The line of an event. Long texts are cut."""
    details = asdict(event)
    time_s = details.pop("time_s")
    for key, longest in (("reason", LONGEST_REASON), ("evidence", LONGEST_EVIDENCE)):
        if key in details:
            details[key] = plain(details[key])[:longest]
    return json.dumps({"t": round(time_s, 3), "event": NAMES[type(event)], **details})


def from_line(line: bytes) -> Event | None:
    """The event in a line; None if it is incomplete or not valid."""
    try:
        value = dict(parsed(line))
        event: Event = record_of(KINDS[value["event"]], {**value, "time_s": value.get("t")})
    except (ValueError, TypeError, KeyError):
        return None
    return event


@dataclass(frozen=True)
class BlamedNode:
    """A host with blames that still count, newest reason and evidence first; times are those of time.time().

    `count` is the number of its ends, checks and notes of the user. It is left out of requests until `until_s`, or not
    yet if that is None: then `more` further blames make it bad.
    """

    site: str
    host: str
    reason: str
    evidence: str
    count: int
    first_s: float
    last_s: float
    until_s: float | None
    more: int
    certain: bool
    runs: tuple[str, ...]

    @property
    def bad(self) -> bool:
        return self.until_s is not None

    @property
    def times(self) -> str:
        """'once', 'twice' or '3 times'."""
        return {1: "once", 2: "twice"}.get(self.count, f"{self.count} times")

    @property
    def why(self) -> str:
        """'lost twice', or the reason alone if it is certain."""
        return self.reason if self.certain else f"{self.reason} {self.times}"

    @property
    def certainty(self) -> tuple[bool, int, float]:
        """The larger it is, the more certain it is that the host is bad."""
        return self.certain, self.count, self.last_s


def blamed(events: Iterable[Event], now_s: float) -> list[BlamedNode]:
    """All hosts with blames that count at `now_s`, by site and host; not all of them are bad."""
    nodes = (_node(blames, now_s) for blames in _by_host(events, now_s))
    return sorted((node for node in nodes if node), key=lambda node: (node.site, node.host))


def bad(events: Iterable[Event], now_s: float, site: str) -> list[BlamedNode]:
    """The bad hosts of a site at `now_s`, the most certain first."""
    nodes = [node for node in blamed(events, now_s) if node.bad and node.site == site]
    return sorted(nodes, key=lambda node: node.certainty, reverse=True)


def last_choice(hosts: Sequence[str], bad: Sequence[BlamedNode]) -> list[str]:
    """The hosts in their order, with the bad ones at the end: the most certain last."""
    certainty = {host: node.certainty for host in hosts for node in bad if same_host(host, node.host)}
    return sorted(hosts, key=lambda host: (host in certainty, certainty.get(host, ())))


def spared(hosts: Sequence[str], bad: Sequence[BlamedNode], nodes: int) -> list[str]:
    """The hosts in their order, without the bad ones that an attempt on `nodes` of them can spare."""
    out = [host for host in last_choice(hosts, bad)[nodes:] if any(same_host(host, node.host) for node in bad)]
    return [host for host in hosts if host not in out]


def living(events: Iterable[Event], now_s: float) -> list[Event]:
    """The events that can still make a difference at `now_s` or later, in the order of time."""
    kept = [event for blames in _by_host(events, now_s) for event in blames if not _is_over(event, now_s)]
    return sorted(kept, key=lambda event: event.time_s)


def _is_over(event: Blamed, now_s: float) -> bool:
    """Whether a blame is so old that no blame which still counts can have come within its time."""
    return event.time_s + 2 * event.for_s <= now_s


def _by_host(events: Iterable[Event], now_s: float) -> Iterator[list[Blamed]]:
    """The blames of every host since it was forgiven, in the order of time. Two names may mean one host."""
    known: dict[tuple[str, str], list[_Host]] = {}  # by site and first part of the name
    for event in sorted((event for event in events if event.time_s <= now_s + SKEW_S), key=lambda event: event.time_s):
        alike = known.setdefault((event.site, event.host.partition(".")[0]), [])
        host = next((host for host in alike if same_host(host.name, event.host)), None)
        if host is None:
            alike.append(host := _Host(event.host))
        host.take(event)
    yield from (host.blames for alike in known.values() for host in alike if host.blames)


@dataclass
class _Host:
    """A host and its blames since it was forgiven."""

    name: str
    blames: list[Blamed] = field(default_factory=list)
    ends: dict[_End, int] = field(default_factory=dict)  # what has blamed the host so far -> its least `after`

    def take(self, event: Event) -> None:
        """Add a blame, or forget all. What has blamed the host does not blame it again, unless it is certain now."""
        if isinstance(event, Forgiven):
            self.blames.clear()
        elif event.after < self.ends.get(_end(event), math.inf):
            self.ends[_end(event)] = event.after
            self.blames.append(event)


def _node(blames: Sequence[Blamed], now_s: float) -> BlamedNode | None:
    """The host that these blames name, which are all its blames in the order of time; None if none counts any more."""
    ends_s = [blame.time_s + blame.for_s for blame in blames if len(_ends_before(blames, blame)) >= blame.after]
    until_s = max(ends_s, default=0.0)
    recent = [blame for blame in blames if blame.time_s + blame.for_s > now_s]
    if until_s <= now_s and not recent:
        return None
    is_bad = until_s > now_s
    counted = [blame for blame in blames if not _is_over(blame, now_s)] if is_bad else recent
    newest, count = counted[-1], len({*map(_end, counted)})
    return BlamedNode(
        site=newest.site,
        host=newest.host,
        reason=newest.reason,
        evidence=newest.evidence,
        count=count,
        first_s=counted[0].time_s,
        last_s=newest.time_s,
        until_s=until_s if is_bad else None,
        more=0 if is_bad else max(newest.after - count, 1),
        certain=any(blame.after == 1 for blame in counted),
        runs=tuple(dict.fromkeys(blame.run for blame in counted if blame.run))[-MOST_RUNS:],
    )


def _ends_before(blames: Sequence[Blamed], last: Blamed) -> set[_End]:
    """What blamed a host up to the blame `last`, within its time."""
    return {_end(blame) for blame in blames if last.time_s - last.for_s < blame.time_s <= last.time_s}


def _end(blame: Blamed) -> _End:
    """What blamed: an attempt, which counts once, or a note of the user."""
    return (blame.run, blame.attempt) if blame.run else ("", blame.time_s)
