"""The supervisor's connections to the processes on the nodes. Each has a thread, so that no node delays another."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from torusrun.orchestrator.job.connection import CALLED, Connection, Proofs
from torusrun.orchestrator.nodes.preflight.dialogue import Errand, Hello, NodeReport, Result, hear, say
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.training.meeting.addresses import RendezvousError, listen

LOOK_S = 0.2
TICK_S = 0.05


@dataclass
class KnownNode:
    """A node that reported. Its clock is `ahead_s` of the supervisor's, give or take `within_s`."""

    connection: Connection
    ahead_s: float
    within_s: float
    report: NodeReport | None = None


class Nodes:
    """The nodes of a preflight by their names in the allocation, as they report."""

    def __init__(self, hosts: Sequence[str], key: bytes, interface: str | None) -> None:
        self._hosts, self._over = hosts, False
        self.known: dict[str, KnownNode] = {}
        self.newest_s = time.monotonic()  # when the newest of them reported
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
        """Hear one node's report. Its clock is compared by one question and its answer."""
        with contextlib.suppress(OSError):
            asked_s = time.time()
            say(connection, Errand(asks=True))
            hello = hear(connection, Hello)
            within_s = (time.time() - asked_s) / 2
            host = next((name for name in self._hosts if same_host(name, hello.host)), None)
            if host is None or host in self.known:
                return connection.close()
            node = self.known[host] = KnownNode(connection, hello.time_s - asked_s - within_s, within_s)
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
    """Sockets at the address of the interface and at that of the host's name: a node may have lost one of them.

    Raises RendezvousError without any.
    """
    found: dict[str, socket.socket] = {}
    wrong = None
    for name in dict.fromkeys((interface, None)):
        try:
            listener = listen(name)
        except RendezvousError as error:
            wrong = error
            continue
        if listener.family == socket.AF_INET and listener.getsockname()[0] not in found:
            found[listener.getsockname()[0]] = listener
        else:
            listener.close()
    if wrong and not found:
        raise wrong
    return list(found.values())
