"""Which hosts and links are slow, from measured pairs of hosts. A pure function.

A pair is slow if its bandwidth is below a limit. Without a limit of the site, that is a third of a fast pair's: of the
third quartile of its round, so that a network whose uplinks are shared is compared with itself, or of all pairs if the
round has few. A third is far from the noise of TCP, and near enough to the faults that matter: a cable or a port that
negotiated a lower rate loses a factor of 4 to 100.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from torusrun.orchestrator.nodes.preflight.schedule import Round
from torusrun.orchestrator.run.folder.node_findings import MeasuredPair

SLOW = 1 / 3  # of a fast pair's bandwidth
QUARTILE = 0.75  # with one bad host of three or four, most pairs of the good hosts are still above it
FEW = 4  # pairs in a round; fewer are compared with those of all rounds
AT_ONCE = 4  # pairs that are measured once more
PARTNERS = 2  # of a host, at least, before it is blamed


@dataclass(frozen=True)
class Blame:
    """The slow hosts, and the slow pairs that these do not explain."""

    hosts: tuple[str, ...] = ()
    links: tuple[MeasuredPair, ...] = ()


def blamed(pairs: Sequence[MeasuredPair], least_bytes_per_s: float | None = None) -> Blame:
    """Blame a host whose pairs are all slow, if at least two of its partners are fast with others.

    So two hosts that are slow together are only a slow link, and if all is slow nobody is blamed.
    """
    once, limit = merged(pairs), limits(pairs, least_bytes_per_s)
    slow = [pair for pair in once if pair.bytes_per_s < limit[pair.round]]
    fast = {host for pair in once if pair.bytes_per_s >= limit[pair.round] for host in pair.hosts}
    partners: dict[str, set[str]] = defaultdict(set)
    for pair in slow:
        for host, other in (pair.hosts, pair.hosts[::-1]):
            partners[host].add(other)
    hosts = tuple(host for host, met in partners.items() if host not in fast and len(met & fast) >= PARTNERS)
    return Blame(hosts, tuple(pair for pair in slow if not set(pair.hosts) & set(hosts)))


def merged(pairs: Sequence[MeasuredPair]) -> list[MeasuredPair]:
    """Each pair once, with the best of its measurements: it is slow only if it was slow each time."""
    found: dict[frozenset[str], MeasuredPair] = {}
    for pair in pairs:
        first = found.setdefault(frozenset(pair.hosts), pair)
        if pair.bytes_per_s > first.bytes_per_s:
            found[frozenset(pair.hosts)] = replace(first, bytes_per_s=pair.bytes_per_s, failed="")
    return [*found.values()]


def limits(pairs: Sequence[MeasuredPair], least_bytes_per_s: float | None = None) -> dict[int, float]:
    """The bandwidth below which a pair of each round is slow: that of the site, or a third of a fast pair's."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for pair in merged(pairs):
        rounds[pair.round].append(pair.bytes_per_s)
    if least_bytes_per_s is not None:
        return dict.fromkeys(rounds, least_bytes_per_s)
    of_all = [rate for rates in rounds.values() for rate in rates]
    return {number: SLOW * _fast(rates if len(rates) >= FEW else of_all) for number, rates in rounds.items()}


def _fast(rates: Collection[float]) -> float:
    return sorted(rates)[math.ceil(QUARTILE * len(rates)) - 1]


def suspects(pairs: Sequence[MeasuredPair], least_bytes_per_s: float | None, again: Round) -> Round:
    """The pairs to measure once more, except those `again`: at most AT_ONCE, each host in one of them.

    These are the blamed hosts, each with a partner that is not blamed, and the slow links.
    """
    slow, done = blamed(pairs, least_bytes_per_s), {first for first, _ in again}
    good = (host for host in dict.fromkeys(host for pair in pairs for host in pair.hosts) if host not in slow.hosts)
    wanted = [*zip((host for host in slow.hosts if host not in done), good, strict=False)]
    wanted += [pair.hosts for pair in slow.links if pair.hosts not in again]
    found: Round = []
    for pair in wanted:
        if len(found) < AT_ONCE and not {host for other in found for host in other} & set(pair):
            found.append(pair)
    return found
