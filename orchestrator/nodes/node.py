"""The process on one node of a preflight: checks the node, reports, and measures with the partners it is given.

Its argument is the attempt's folder. Every check has a thread of its own and a limit for its time, since a program that
a faulty GPU holds cannot even be killed.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.job.connection import CALLING, Connection, Proofs
from torusrun.orchestrator.nodes import pair
from torusrun.orchestrator.nodes.checks import gpus, machine, ports
from torusrun.orchestrator.nodes.findings import Judgement, NodeFinding, NodeFindings
from torusrun.orchestrator.nodes.messages import (
    Errand,
    Hello,
    NodeOrder,
    NodeReport,
    Result,
    WantedNode,
    hear,
    read_order,
    say,
)
from torusrun.orchestrator.place.hosts.same_host import this_host
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.meeting.addresses import RendezvousError, listen
from torusrun.training.reporting.output import never_fail

ALONE_S = 25.0  # for all checks together
OPENING_S = 20.0  # to reach the supervisor
REST_S = 0.2  # between calls of an address

Check = Callable[[], Iterable[NodeFinding]]
Done = queue.Queue[tuple[str, list[NodeFinding]]]


def main() -> None:
    try:
        order = read_order(Attempt(Path(sys.argv[1])))
        _serve(connected(order), order.node, this_host(order.hosts, os.environ.get(order.host_variable, "")))
    except (TorusrunError, OSError) as error:
        print(f"torusrun: {socket.gethostname()}: {error}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(0)  # a check that hangs must not hold this process


def connected(order: NodeOrder) -> Connection:
    """The connection to the supervisor, by the first of its addresses that answers. Raises OSError without one."""
    until_s = time.monotonic() + OPENING_S
    failures: dict[str, str] = {}
    while time.monotonic() < until_s:
        with Proofs(order.key, CALLING) as proofs:
            for address, port in zip(order.addresses, order.ports, strict=True):
                proofs.call(address, port)
            while proofs.waiting and (left_s := until_s - time.monotonic()) > 0:
                if connection := proofs.step(left_s):
                    return connection
            failures = proofs.failures or dict.fromkeys(proofs.waiting, "no answer")
        time.sleep(REST_S)
    raise OSError(f"the supervisor cannot be reached: {'; '.join(f'{at}: {why}' for at, why in failures.items())}")


def _serve(connection: Connection, wanted: WantedNode, host: str) -> None:
    say(connection, Hello(host))
    findings = alone(wanted, host)
    listener = _listener(wanted)
    address, port = listener.getsockname()[:2] if listener else ("", 0)
    say(connection, NodeReport(findings, address, port))
    while (errand := hear(connection, Errand)).token:
        say(connection, _measured(errand, listener))


def alone(wanted: WantedNode, host: str) -> NodeFindings:
    """All checks of this node, at once; the job calls it `host`."""
    links: dict[str, float] = {}

    def with_links(checked: tuple[Iterable[NodeFinding], dict[str, float]]) -> Iterable[NodeFinding]:
        findings, values = checked
        links.update(values)
        return findings

    checks: dict[str, Check] = {
        "machine": lambda: machine(wanted),
        "infiniband": lambda: with_links(ports(wanted.hcas)),
        **({"gpus": lambda: with_links(gpus(wanted))} if wanted.gpus else {}),
    }
    findings = tuple(all_of(checks, ALONE_S))
    return NodeFindings(host, findings, dict(links))


def all_of(checks: dict[str, Check], limit_s: float) -> Iterator[NodeFinding]:
    """The findings of the checks, each made in its own thread. One that does not end in time is bad."""
    done: Done = queue.Queue()
    for name, check in checks.items():
        threading.Thread(target=_make, args=(name, check, done), daemon=True).start()
    until_s, left = time.monotonic() + limit_s, dict.fromkeys(checks)
    while left:
        try:
            name, findings = done.get(timeout=max(until_s - time.monotonic(), 0))
        except queue.Empty:
            break
        del left[name]
        yield from findings
    yield from (NodeFinding(name, Judgement.BAD, f"no answer within {limit_s:g} s") for name in left)


def _make(name: str, check: Check, done: Done) -> None:
    try:
        done.put((name, list(check())))
    except (TorusrunError, OSError, ValueError) as error:
        done.put((name, [NodeFinding(name, Judgement.SKIPPED, str(error))]))


def _listener(wanted: WantedNode) -> socket.socket | None:
    try:
        return listen(wanted.interface)
    except RendezvousError:  # the check of the interface says so
        return None


def _measured(errand: Errand, listener: socket.socket | None) -> Result:
    """Measure with the partner."""
    token = bytes.fromhex(errand.token)
    try:
        if errand.address:
            link = pair.call(errand.address, errand.port, token)
        elif listener:
            link = pair.accept(listener, token)
        else:
            return Result(failed="this node has no address")
        return Result(pair.received(link, errand.measure_s))
    except OSError as error:
        return Result(failed=str(error))


if __name__ == "__main__":
    never_fail()
    main()
