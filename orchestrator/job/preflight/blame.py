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
from dataclasses import dataclass

from orchestrator.job.preflight.schedule import Round
from orchestrator.runs.folder.node_findings import MeasuredPair

SLOW = 1 / 3  # of a fast pair's bandwidth
QUARTILE = 0.75  # with one bad host of three or four, most pairs of the good hosts are still above it
FEW = 4  # pairs in a round; fewer are compared with those of all rounds
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
    limit = limits(pairs, least_bytes_per_s)
    slow = [pair for pair in pairs if pair.bytes_per_s < limit[pair.round]]
    fast = {host for pair in pairs if pair.bytes_per_s >= limit[pair.round] for host in pair.hosts}
    partners: dict[str, set[str]] = defaultdict(set)
    for pair in slow:
        for host, other in (pair.hosts, pair.hosts[::-1]):
            partners[host].add(other)
    hosts = tuple(host for host, met in partners.items() if host not in fast and len(met & fast) >= PARTNERS)
    return Blame(hosts, tuple(pair for pair in slow if not set(pair.hosts) & set(hosts)))


def suspects(found: Sequence[MeasuredPair], least_bytes_per_s: float | None, alone: Collection[str] = ()) -> Round:
    """The hosts that are blamed, without those already measured `alone`, each with a partner that is not blamed."""
    slow = blamed(found, least_bytes_per_s).hosts
    good = dict.fromkeys(host for pair in found for host in pair.hosts if host not in slow)
    return [*zip([host for host in slow if host not in alone], good, strict=False)]


def limits(pairs: Sequence[MeasuredPair], least_bytes_per_s: float | None = None) -> dict[int, float]:
    """The bandwidth below which a pair of each round is slow: that of the site, or a third of a fast pair's."""
    rounds: dict[int, list[MeasuredPair]] = defaultdict(list)
    for pair in pairs:
        rounds[pair.round].append(pair)
    if least_bytes_per_s is not None:
        return dict.fromkeys(rounds, least_bytes_per_s)
    of_all = _fast(pairs) if pairs else 0.0
    return {number: SLOW * (_fast(beside) if len(beside) >= FEW else of_all) for number, beside in rounds.items()}


def _fast(pairs: Sequence[MeasuredPair]) -> float:
    """The third quartile of these pairs; one that was measured again counts once."""
    best: dict[frozenset[str], float] = {}
    for pair in pairs:
        hosts = frozenset(pair.hosts)
        best[hosts] = max(best.get(hosts, 0.0), pair.bytes_per_s)
    return sorted(best.values())[math.ceil(QUARTILE * len(best)) - 1]
