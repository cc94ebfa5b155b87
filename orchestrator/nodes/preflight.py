"""The preflight of an attempt: one process on each node, started as the ranks will be, and what follows from it.

How long it takes for 128 nodes: the launcher's start, as for the ranks, 1 to 3 s; the checks of all nodes at once, 1 to
3 s; the rounds of pairs, 5 s (connections.py). That is about 10 s in all. A GPU that does not answer takes
ALONE_S = 25 s, a node that stays silent SILENT_S = 20 s since the newest other one, and both at once
3 + 20 + 27 + 5 = 55 s.

A preflight that is not possible blames no host, and the ranks start.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.images import pyxis, runtime
from torusrun.orchestrator.job.start.launch import launch
from torusrun.orchestrator.nodes.connections import Nodes, measured, until
from torusrun.orchestrator.nodes.findings import Judgement, NodeFinding, NodeFindings, PreflightRecord
from torusrun.orchestrator.nodes.judge import ANSWER, compared, judge
from torusrun.orchestrator.nodes.messages import NodeOrder, WantedNode, wanted
from torusrun.orchestrator.nodes.node import ALONE_S
from torusrun.orchestrator.run.bad_nodes.noted import found_bad
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import LeftOut
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.image import recorded
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.schedulers.launchers import Launcher
from torusrun.training.counted import counted
from torusrun.training.meeting.addresses import RendezvousError

FIRST_S = 60.0  # until the first node reports
SILENT_S = 20.0  # since the newest report, before the other nodes are given up
ENDING_S = 5.0
SPARE_S = 2.0  # for reports on their way
SECRET_BYTES = 32


class Stopped(Exception):
    """The attempt received a request to stop during the preflight."""

    def __init__(self, end: End) -> None:
        self.end = end


class NotPossible(TorusrunError):
    """No preflight was possible on these nodes, which is no evidence against them."""


def passed(
    plan: Plan, run: RunFolder, attempt: Attempt, hosts: Sequence[str], starter: Launcher,
    asked: Callable[[], End | None],
) -> list[str] | End:  # fmt: skip
    """The hosts without those that a preflight finds bad; the attempt's end if too few are left, or it has to stop.

    `asked` returns the attempt's end if it has to stop now. The record is written into the attempt's folder.
    """

    def look() -> None:
        if end := asked():
            raise Stopped(end)

    try:
        record = Preflight(plan, run, attempt, list(dict.fromkeys(hosts)), starter, look).run()
    except Stopped as stopped:
        return stopped.end
    except (TorusrunError, RendezvousError, OSError) as error:
        print(f"torusrun: no preflight, so no node was checked: {error}", file=sys.stderr, flush=True)
        return [*hosts]
    try:
        record.write(attempt.preflight)
    except TorusrunError as error:  # a full disk: its findings count all the same
        print(f"torusrun: preflight: {error}", file=sys.stderr, flush=True)
    print(f"torusrun: preflight of {counted(len(record.nodes), 'node')}: {record.took_s:.1f} s", flush=True)
    for remark in record.remarks:
        print(f"torusrun: preflight: {remark}", file=sys.stderr, flush=True)
    return _without(record, plan, run, attempt, hosts)


def _without(
    record: PreflightRecord, plan: Plan, run: RunFolder, attempt: Attempt, hosts: Sequence[str]
) -> list[str] | End:
    good = [host for host in hosts if host not in record.bad]
    if not record.bad:
        return good
    found_bad(run, attempt.number, {host: "; ".join(evidence) for host, evidence in record.bad.items()})
    if len(set(good)) < plan.all_nodes:
        return ended(How.BAD_HOST, hosts=[*record.bad], why=record.why)
    print(f"torusrun: preflight: left out: {record.why}", file=sys.stderr, flush=True)
    with suppress(SiteError):  # a full disk
        ledger.append(run.ledger, LeftOut(attempt.number, tuple(record.bad), record.why))
    return good


@dataclass(frozen=True)
class Preflight:
    """The preflight of an attempt on these hosts. `look` is called often, and may raise."""

    plan: Plan
    run_folder: RunFolder
    attempt: Attempt
    hosts: Sequence[str]
    starter: Launcher
    look: Callable[[], None]

    def run(self) -> PreflightRecord:
        """Check all nodes. Raises NotPossible if most did not report."""
        began_s, key, limits = time.monotonic(), secrets.token_bytes(SECRET_BYTES), self.plan.site.preflight
        nodes = Nodes(self.hosts, key, self.plan.site.node.interface)
        try:
            variable = schedulers.get(self.plan.site.scheduler).variables.host
            order = NodeOrder(nodes.addresses, nodes.ports, key.hex(), self._wanted(), tuple(self.hosts), variable)
            order.write(self.attempt)
            with self._started(nodes) as launched:
                self._wait(nodes, launched)
                pairs = measured(nodes, limits.pair_bytes_per_s, self.look)
        finally:
            nodes.close()
            self.attempt.preflight_order.unlink(missing_ok=True)
        took_s = round(time.monotonic() - began_s, 3)
        return judge(self._findings(nodes), pairs, least_bytes_per_s=limits.pair_bytes_per_s, took_s=took_s)

    def _wanted(self) -> WantedNode:
        """What a node should have, with the images that the ranks will use and their runtime.

        A node's daemon starts enroot for Pyxis, with a PATH of its own, so enroot is not looked for.
        """
        site, images = self.plan.site, recorded.all_kept(self.run_folder).values()
        if not images:
            return wanted(site)
        program = None if pyxis.used(site.container.runtime) else runtime.find(site.container.runtime)
        return wanted(site, program.command if program else "", [image.path for image in images])

    @contextmanager
    def _started(self, nodes: Nodes) -> Iterator[subprocess.Popen[bytes]]:
        """A launcher with one process on each host. At the end, or if it has to stop, all end."""
        write_text(self.attempt.preflight_hosts, "".join(f"{host}\n" for host in self.hosts))
        one_each = replace(
            launch(self.plan, self.attempt, self.starter, os.environ),
            nodes=len(self.hosts), ranks=len(self.hosts), hostfile=self.attempt.preflight_hosts, mpi=False,
        )  # fmt: skip
        node = process.module(self.plan.python, "torusrun.orchestrator.nodes.node", self.attempt.folder)
        with open(self.attempt.preflight_output, "ab") as output:
            launched = process.start(
                [*self.starter.command(one_each), *self.plan.site.launcher_args, *node],
                own_group=True,
                cwd=self.attempt.folder,
                output=output,
                parent_death=signal.SIGTERM,
                environment={**os.environ, **self.plan.environment, **self.starter.environment(one_each)},
            )
        patience_s = 0.0
        try:
            yield launched
            patience_s = ENDING_S
        finally:
            nodes.close()
            _end(launched, patience_s)

    def _wait(self, nodes: Nodes, launched: subprocess.Popen[bytes]) -> None:
        """Wait until all nodes have reported, or the others are given up.

        Raises NotPossible if most have not, or if the launcher ended first: it ends all processes if one fails.
        """
        count, latest_s = len(self.hosts), time.monotonic() + FIRST_S + SILENT_S

        def given_up() -> bool:
            silent_s = time.monotonic() - nodes.newest_s
            return silent_s > (SILENT_S if nodes.known else FIRST_S) or launched.poll() is not None

        until(lambda: len(nodes.known) == count or given_up(), latest_s, self.look)
        until(
            lambda: len(nodes.reported) == len(nodes.known) or launched.poll() is not None,
            time.monotonic() + ALONE_S + SPARE_S, self.look,
        )  # fmt: skip
        reported = len(nodes.reported)
        if 2 * reported <= count or (reported < count and launched.poll() is not None):
            raise NotPossible(f"{reported} of {count} nodes reported, see {self.attempt.preflight_output}")

    def _findings(self, nodes: Nodes) -> list[NodeFindings]:
        """The findings of all hosts, also those that compare all hosts."""
        silent = (NodeFinding(ANSWER, Judgement.BAD, "none, while most nodes answered"),)
        reports = nodes.reported
        every = [
            replace(reports[host].findings, host=host) if host in reports else NodeFindings(host, silent)
            for host in self.hosts
        ]
        return compared(every)


def _end(launched: subprocess.Popen[bytes], patience_s: float) -> None:
    """Wait for the launcher's end; end it if its processes do not end, so that the ranks find their nodes free."""
    for number, wait_s in ((None, patience_s), (signal.SIGTERM, ENDING_S), (signal.SIGKILL, ENDING_S)):
        if number:
            with suppress(ProcessLookupError):
                os.killpg(launched.pid, number)
        with suppress(subprocess.TimeoutExpired):
            launched.wait(wait_s)
            return
