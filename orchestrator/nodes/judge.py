"""Which hosts and links are bad, from the findings of all nodes and the measured pairs of hosts. Pure functions.

A pair is slow if its bandwidth is below a limit. Without a limit of the site, that is a third of a fast pair's: of the
third quartile of its round, so that a network whose uplinks are shared is compared with itself, or of all pairs if the
round has few. A third is far from the noise of TCP, and near enough to the faults that matter: a cable or a port that
negotiated a lower rate loses a factor of 4 to 100.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torusrun.orchestrator.nodes.findings import Judgement, MeasuredPair, NodeFinding, NodeFindings, PreflightRecord
from torusrun.training.counted import counted

Pairs = list[tuple[str, str]]  # of hosts

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
    best: dict[frozenset[str], MeasuredPair] = {}
    for pair in pairs:
        first = best.setdefault(frozenset(pair.hosts), pair)
        if pair.bytes_per_s > first.bytes_per_s:
            best[frozenset(pair.hosts)] = replace(first, bytes_per_s=pair.bytes_per_s, failed="")
    return [*best.values()]


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


def suspects(pairs: Sequence[MeasuredPair], least_bytes_per_s: float | None, again: Pairs) -> Pairs:
    """The pairs to measure once more, except those `again`: at most AT_ONCE, each host in one of them.

    These are the blamed hosts, each with a partner that is not blamed, and the slow links.
    """
    slow, done = blamed(pairs, least_bytes_per_s), {first for first, _ in again}
    good = (host for host in dict.fromkeys(host for pair in pairs for host in pair.hosts) if host not in slow.hosts)
    wanted = [*zip((host for host in slow.hosts if host not in done), good, strict=False)]
    wanted += [pair.hosts for pair in slow.links if pair.hosts not in again]
    chosen: Pairs = []
    for pair in wanted:
        if len(chosen) < AT_ONCE and not {host for other in chosen for host in other} & set(pair):
            chosen.append(pair)
    return chosen


MAJORITY = 3  # hosts; with fewer none is in the minority
MOST_LINKS = 8  # in words
LINK, ANSWER, ADAPTER = "link", "answer", "infiniband"


def judge(
    nodes: Sequence[NodeFindings], pairs: Sequence[MeasuredPair], *, least_bytes_per_s: float | None, took_s: float
) -> PreflightRecord:
    """The record of a preflight with these findings of nodes and these pairs."""
    slow = blamed(pairs, least_bytes_per_s)
    links = {node.host: tuple(_link(node.host, pairs, slow, least_bytes_per_s)) for node in nodes}
    judged = [replace(node, findings=node.findings + links[node.host]) for node in nodes]
    shared = _shared(judged)
    evidence = {
        node.host: tuple(finding.words for finding in node.findings if _is_bad(finding) and finding.check not in shared)
        for node in judged
    }
    bad = {host: words for host, words in evidence.items() if words}
    remarks = [f"all {words}: no host is blamed" for words in shared.values()]
    remarks += [
        f"slow link: {pair.first} and {pair.second}: {pair.failed or gigabits(pair.bytes_per_s)}"
        for pair in slow.links[:MOST_LINKS]
    ]
    if len(slow.links) > MOST_LINKS:
        remarks.append(f"and {len(slow.links) - MOST_LINKS} more slow links")
    return PreflightRecord(took_s, tuple(judged), tuple(pairs), bad, slow.links, tuple(remarks))


def gigabits(bytes_per_s: float) -> str:
    """'100 Gbit/s'."""
    return f"{8 * bytes_per_s / 1e9:.4g} Gbit/s"


def compared(nodes: Sequence[NodeFindings]) -> list[NodeFindings]:
    """The findings with those that need all nodes: rates of adapters, and links of GPUs."""
    counts = Counter(item for node in nodes for item in node.links.items())
    most = {part: value for (part, value), count in counts.items()
            if len(nodes) >= MAJORITY and 2 * count > len(nodes)}  # fmt: skip
    return [replace(node, findings=(*node.findings, *_less(node, most))) for node in nodes]


def _less(node: NodeFindings, most: Mapping[str, float]) -> Iterator[NodeFinding]:
    """The links of a node that are slower, or fewer, than those of more than half of all nodes."""
    for part, value in node.links.items():
        if value < most.get(part, 0.0):
            check, _, of = part.partition(" ")
            if check == ADAPTER:
                yield NodeFinding(part, Judgement.BAD, gigabits(value), f"{gigabits(most[part])} as on most nodes")
            else:
                yield NodeFinding(check, Judgement.BAD, f"{of} has {value:g}", f"{most[part]:g} as on most nodes")


def _link(host: str, pairs: Sequence[MeasuredPair], slow: Blame, least: float | None) -> Iterator[NodeFinding]:
    """The links of a host to its partners."""
    own = [pair for pair in merged(pairs) if host in pair.hosts]
    if not own:
        return
    best = max(own, key=lambda pair: pair.bytes_per_s)
    if host in slow.hosts:
        partners = len({other for pair in own for other in pair.hosts}) - 1
        value = f"{gigabits(best.bytes_per_s)} at most, to {counted(partners, 'node')}"
        yield NodeFinding(LINK, Judgement.BAD, value, gigabits(limits(pairs, least)[best.round]))
    else:
        yield NodeFinding(LINK, Judgement.GOOD, f"up to {gigabits(best.bytes_per_s)}")


def _shared(nodes: Sequence[NodeFindings]) -> dict[str, str]:
    """Checks that several hosts made and all of these failed, in words: the limit is wrong, or what they share.

    A host that skipped a check or was silent says nothing about the limit. Silence and links are no such checks.
    """
    made = _counted(nodes, Judgement.GOOD, Judgement.BAD)
    shared = {check: count for check, count in _counted(nodes, Judgement.BAD).items() if 1 < count == made[check]}
    return {
        finding.check: f"{counted(shared[finding.check], 'host')} that could be checked fail {finding.words}"
        for node in nodes for finding in node.findings
        if finding.check in shared and finding.check not in (ANSWER, LINK) and _is_bad(finding)
    }  # fmt: skip


def _counted(nodes: Sequence[NodeFindings], *results: Judgement) -> Counter[str]:
    """How many hosts have one of these results in each check."""
    of_hosts = ({finding.check for finding in node.findings if finding.result in results} for node in nodes)
    return Counter(check for checks in of_hosts for check in checks)


def _is_bad(finding: NodeFinding) -> bool:
    return finding.result is Judgement.BAD
