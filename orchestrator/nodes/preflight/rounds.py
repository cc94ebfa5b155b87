"""Measures pairs of nodes in rounds, and those that seem slow once more, with little else on the network.

For N nodes: ceil(log2(N)) + 1 rounds of ROUND_S and some milliseconds to ask and answer. A pair that cannot connect
takes OPEN_S more, for all pairs of its round together. So 128 nodes take 8 x 0.6 s = 5 s, or 8 x 3.6 s = 29 s if a node
can never be reached, and then 1.1 s for each of at most AGAIN more rounds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from torusrun.orchestrator.nodes.preflight.blame import suspects
from torusrun.orchestrator.nodes.preflight.dialogue import Errand, Result
from torusrun.orchestrator.nodes.preflight.nodes import Nodes, until
from torusrun.orchestrator.nodes.preflight.pair import OPEN_S, TOKEN_BYTES
from torusrun.orchestrator.nodes.preflight.schedule import Round, schedule
from torusrun.orchestrator.run.folder.node_findings import MeasuredPair

ROUND_S, CONFIRM_S = 0.5, 1.0
SPARE_S = 2.0  # for a round, beyond what connecting and measuring may take
AGAIN = 3


def measured(nodes: Nodes, least_bytes_per_s: float | None, look: Callable[[], None]) -> list[MeasuredPair]:
    """The pairs of all rounds. With two nodes and no limit there is nothing to compare, and nothing is measured."""
    hosts = [host for host, report in nodes.reported.items() if report.address]
    if len(hosts) < 2 or (len(hosts) == 2 and least_bytes_per_s is None):
        return []
    found: list[MeasuredPair] = []
    for pairs in schedule(hosts):
        found += _round(nodes, pairs, _next(found), ROUND_S, look)
    again: Round = []
    for _ in range(AGAIN):
        if not (pairs := suspects(found, least_bytes_per_s, again)):
            break
        found += _round(nodes, pairs, _next(found), CONFIRM_S, look)
        again += pairs
    return found


def _next(found: Sequence[MeasuredPair]) -> int:
    return found[-1].round + 1 if found else 0


def _round(nodes: Nodes, pairs: Round, number: int, measure_s: float, look: Callable[[], None]) -> list[MeasuredPair]:
    errands = {}
    for first, second in pairs:
        token, to = secrets.token_hex(TOKEN_BYTES), nodes.reported[second]
        errands[second] = Errand(token=token, measure_s=measure_s)
        errands[first] = Errand(token=token, address=to.address, port=to.port, measure_s=measure_s)
    asked = nodes.ask(errands)
    most_s = time.monotonic() + OPEN_S + measure_s + SPARE_S
    until(lambda: all(result.done() for result in asked.values()), most_s, look)
    results = {host: result.result() if result.done() else nodes.give_up(host) for host, result in asked.items()}
    return [_pair(number, pair, results) for pair in pairs]


def _pair(number: int, pair: tuple[str, str], results: dict[str, Result]) -> MeasuredPair:
    both = [results[host] for host in pair]
    failed = next((result.failed for result in both if result.failed), "")
    return MeasuredPair(number, *pair, 0.0 if failed else min(result.bytes_per_s for result in both), failed)
