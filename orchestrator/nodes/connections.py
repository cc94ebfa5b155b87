"""The supervisor's connections to the processes on the nodes, and the rounds in which these measure their links.

Each connection has a thread, so that no node delays another. The rounds are some of those of a round-robin tournament
by the circle method (Kirkman, 1847): one node is fixed and the others turn around it. For N nodes there are
ceil(log2(N)) + 1 rounds of ROUND_S and some milliseconds to ask and answer. A pair that cannot connect takes OPEN_S
more, for all pairs of its round together. So 128 nodes take 8 x 0.6 s = 5 s, or 8 x 3.6 s = 29 s if a node can never be
reached. Pairs that seem slow are measured once more, with little else on the network: 1.1 s for each of at most AGAIN
rounds.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from torusrun.orchestrator.job.connection import CALLED, Connection, Proofs
from torusrun.orchestrator.nodes.findings import MeasuredPair
from torusrun.orchestrator.nodes.judge import Pairs, suspects
from torusrun.orchestrator.nodes.messages import Errand, Hello, NodeReport, Result, hear, say
from torusrun.orchestrator.nodes.pair import OPEN_S, TOKEN_BYTES
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.training.meeting.addresses import RendezvousError, listen

LOOK_S = 0.2
TICK_S = 0.05


@dataclass
class KnownNode:
    """A node that has begun."""

    connection: Connection
    report: NodeReport | None = None


class Nodes:
    """The nodes of a preflight by their names in the allocation, as they report."""

    def __init__(self, hosts: Sequence[str], key: bytes, interface: str | None) -> None:
        self._hosts, self._over = hosts, False
        self.known: dict[str, KnownNode] = {}
        self.newest_s = time.monotonic()  # when the newest node reported
        self._listeners = _listeners(interface)
        self._proofs = Proofs(key, CALLED)
        for listener in self._listeners:
            self._proofs.listen(listener)
        threading.Thread(target=self._accept, name="preflight", daemon=True).start()

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(listener.getsockname()[0] for listener in self._listeners)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(listener.getsockname()[1] for listener in self._listeners)

    @property
    def reported(self) -> Mapping[str, NodeReport]:
        return {host: node.report for host, node in [*self.known.items()] if node.report}

    def _accept(self) -> None:
        with self._proofs:
            while not self._over:
                if connection := self._proofs.step(LOOK_S):
                    threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
        for listener in self._listeners:
            listener.close()

    def _listen(self, connection: Connection) -> None:
        """Hear one node's report."""
        with contextlib.suppress(OSError):
            hello = hear(connection, Hello)
            host = next((name for name in self._hosts if same_host(name, hello.host)), None)
            if host is None or host in self.known:
                return connection.close()
            node = self.known[host] = KnownNode(connection)
            self.newest_s = time.monotonic()
            if self._over:  # close() may have looked at the others before
                return connection.close()
            node.report = hear(connection, NodeReport)

    def ask(self, errands: Mapping[str, Errand]) -> dict[str, Future[Result]]:
        """Send every host its errand; the results to come."""
        asked = {}
        for host, errand in errands.items():
            asked[host] = result = Future[Result]()
            work = (self.known[host].connection, errand, result)
            threading.Thread(target=_asked, args=work, daemon=True).start()
        return asked

    def give_up(self, host: str) -> Result:
        """Ask a host that does not answer nothing more; its result."""
        self.known[host].connection.close()
        return Result(failed="no answer")

    def close(self) -> None:
        """Let all processes end."""
        self._over = True
        for node in [*self.known.values()]:  # another may report meanwhile
            with contextlib.suppress(OSError):
                say(node.connection, Errand())
            node.connection.close()


def _asked(connection: Connection, errand: Errand, result: Future[Result]) -> None:
    try:
        say(connection, errand)
        result.set_result(hear(connection, Result))
    except OSError as error:
        result.set_result(Result(failed=f"it does not answer any more: {error}"))


def until(done: Callable[[], bool], until_s: float, look: Callable[[], None]) -> None:
    """Wait for `done`, at most until this time. `look` is called while it waits, and may raise."""
    while not done() and time.monotonic() < until_s:
        look()
        time.sleep(TICK_S)


def _listeners(interface: str | None) -> list[socket.socket]:
    """Sockets at the address of the interface and at that of the host's name: a node may have lost either.

    Raises RendezvousError without any.
    """
    by_address: dict[str, socket.socket] = {}
    wrong = None
    for name in dict.fromkeys((interface, None)):
        try:
            listener = listen(name)
        except RendezvousError as error:
            wrong = error
            continue
        if listener.family == socket.AF_INET and listener.getsockname()[0] not in by_address:
            by_address[listener.getsockname()[0]] = listener
        else:
            listener.close()
    if wrong and not by_address:
        raise wrong
    return list(by_address.values())


ROUND_S, CONFIRM_S = 0.5, 1.0
SPARE_S = 2.0  # for a round, beyond what connecting and measuring may take
AGAIN = 3


def measured(nodes: Nodes, least_bytes_per_s: float | None, look: Callable[[], None]) -> list[MeasuredPair]:
    """The pairs of all rounds. Two nodes without a limit have nothing to compare with, so nothing is measured."""
    hosts = [host for host, report in nodes.reported.items() if report.address]
    if len(hosts) < 2 or (len(hosts) == 2 and least_bytes_per_s is None):
        return []
    rounds, again = schedule(hosts), Pairs()
    results: list[MeasuredPair] = []
    for number, pairs in enumerate(rounds):
        results += _round(nodes, pairs, number, ROUND_S, look)
    for number in range(len(rounds), len(rounds) + AGAIN):
        if not (pairs := suspects(results, least_bytes_per_s, again)):
            break
        results += _round(nodes, pairs, number, CONFIRM_S, look)
        again += pairs
    return results


def _round(nodes: Nodes, pairs: Pairs, number: int, measure_s: float, look: Callable[[], None]) -> list[MeasuredPair]:
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


def schedule(hosts: Sequence[str]) -> list[Pairs]:
    """The rounds of pairs. With an odd number of hosts, one host has no partner in each round."""
    places: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    turning = len(places) - 1
    count = min(turning, math.ceil(math.log2(len(hosts))) + 1) if len(hosts) > 1 else 0
    return [_turned(places, turning * number // count) for number in range(count)]


def _turned(places: Sequence[str | None], turn: int) -> Pairs:
    turning = len(places) - 1
    pairs = [(places[turning], places[turn])]
    pairs += [(places[(turn + k) % turning], places[(turn - k) % turning]) for k in range(1, len(places) // 2)]
    return [(first, second) for first, second in pairs if first is not None and second is not None]
