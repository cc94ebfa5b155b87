"""Judges the findings of all nodes together: which hosts are bad, and the evidence. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median_low

from torusrun.orchestrator.nodes.preflight.blame import Blame, blamed, limits, merged
from torusrun.orchestrator.nodes.preflight.ports import gigabits
from torusrun.orchestrator.run.folder.node_findings import (
    Judgement,
    MeasuredPair,
    NodeFinding,
    NodeFindings,
    PreflightRecord,
)
from torusrun.training.counted import counted

MAJORITY = 3  # hosts; with fewer none is in the minority
MOST_LINKS = 8  # in words
CLOCK_S = 10.0  # the largest difference between the clock of a node and those of most nodes
LINK, CLOCK, ANSWER = "link", "clock", "answer"


def judge(
    nodes: Sequence[NodeFindings], pairs: Sequence[MeasuredPair], *, least_bytes_per_s: float | None, took_s: float
) -> PreflightRecord:
    """The record of a preflight with these findings of nodes and these pairs."""
    slow = blamed(pairs, least_bytes_per_s)
    all_found = [
        replace(node, findings=(*node.findings, *_link(node.host, pairs, slow, least_bytes_per_s))) for node in nodes
    ]
    shared = _shared(all_found)
    bad = {node.host: tuple(found.words for found in node.findings if _is_bad(found) and found.check not in shared)
           for node in all_found}  # fmt: skip
    remarks = [f"all {words}: no host is blamed" for words in shared.values()]
    remarks += [f"slow link: {words_of(pair)}" for pair in slow.links[:MOST_LINKS]]
    if len(slow.links) > MOST_LINKS:
        remarks.append(f"and {len(slow.links) - MOST_LINKS} more slow links")
    return PreflightRecord(
        took_s, tuple(all_found), tuple(pairs), {host: found for host, found in bad.items() if found},
        slow.links, tuple(remarks),
    )  # fmt: skip


def words_of(pair: MeasuredPair) -> str:
    """'node1 and node2: 0.8 Gbit/s'."""
    return f"{pair.first} and {pair.second}: {pair.failed or gigabits(pair.bytes_per_s)}"


def compared(
    nodes: Sequence[NodeFindings], clocks: Mapping[str, tuple[float, float]], port_is_given: bool
) -> list[NodeFindings]:
    """The findings with those that need all nodes.

    These are the clocks, the links of GPUs, and the rates of adapters unless the site gives a limit.
    """
    rates = {} if port_is_given else _usual([node.port_rates for node in nodes])
    links = _usual([node.gpu_links for node in nodes])
    return [
        replace(node, findings=(
            *node.findings, *_slow_ports(node, rates), *_few_links(node, links), *_clock(node.host, clocks)
        ))
        for node in nodes
    ]  # fmt: skip


def _usual(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The value of each part, such as an adapter, that more than half of all nodes have."""
    counts = Counter(item for of_node in values for item in of_node.items())
    return {part: value for (part, value), count in counts.items()
            if len(values) >= MAJORITY and 2 * count > len(values)}  # fmt: skip


def _slow_ports(node: NodeFindings, usual: Mapping[str, float]) -> Iterator[NodeFinding]:
    for hca, rate in node.port_rates.items():
        if rate < usual.get(hca, 0.0):
            yield NodeFinding(f"infiniband {hca}", Judgement.BAD, gigabits(rate), gigabits(usual[hca]))


def _few_links(node: NodeFindings, usual: Mapping[str, float]) -> Iterator[NodeFinding]:
    for part, count in node.gpu_links.items():
        if count < usual.get(part, 0):
            check, _, gpu = part.partition(" ")
            yield NodeFinding(check, Judgement.BAD, f"{gpu} has {count}", f"{usual[part]:g} as on most nodes")


def _clock(host: str, clocks: Mapping[str, tuple[float, float]]) -> Iterator[NodeFinding]:
    """The clock of a host, compared with the median; of two that differ, nobody knows which one is wrong."""
    if host not in clocks:
        return
    ahead_s, within_s = clocks[host]
    ahead_s -= median_low(sorted(ahead for ahead, _ in clocks.values()))
    wrong = abs(ahead_s) - within_s > CLOCK_S
    result = (Judgement.BAD if len(clocks) >= MAJORITY else Judgement.SKIPPED) if wrong else Judgement.GOOD
    yield NodeFinding(CLOCK, result, f"{ahead_s:+.3f} s", f"at most {CLOCK_S:g} s")


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
        found.check: f"{counted(shared[found.check], 'host')} that could be checked fail {found.words}"
        for node in nodes for found in node.findings
        if found.check in shared and found.check not in (ANSWER, LINK) and _is_bad(found)
    }  # fmt: skip


def _counted(nodes: Sequence[NodeFindings], *results: Judgement) -> Counter[str]:
    """How many hosts have one of these results in each check."""
    return Counter(
        check for node in nodes for check in {found.check for found in node.findings if found.result in results}
    )


def _is_bad(found: NodeFinding) -> bool:
    return found.result is Judgement.BAD
