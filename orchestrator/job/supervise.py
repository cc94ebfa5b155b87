"""The supervisor of an attempt, on the first node: places, launches and watches the ranks, and records the end.

`orchestrator.job.supervise ATTEMPT_FOLDER`, started by the attempt's job. It exits with a failure unless the run
completed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import gather, in_job
from torusrun.orchestrator.job.earlier import end_remains, wait_for_earlier
from torusrun.orchestrator.job.gather import Daemon
from torusrun.orchestrator.job.image.made_ready import made_ready
from torusrun.orchestrator.job.in_job import InJob
from torusrun.orchestrator.job.ready_elsewhere import beside_ready
from torusrun.orchestrator.job.recorded import failed, forget_first, recorded, settled_end
from torusrun.orchestrator.job.running import Running
from torusrun.orchestrator.job.start.launch import command, environment, launcher
from torusrun.orchestrator.job.start.prepare import copied_to_nodes, prepare
from torusrun.orchestrator.job.stop_requests import StopRequests
from torusrun.orchestrator.job.verdict import Evidence, verdict
from torusrun.orchestrator.place.hosts.same_host import without
from torusrun.orchestrator.place.placement.mapping import Placement, place
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.bad_nodes.bad_node import spared
from torusrun.orchestrator.run.folder import claim, ledger
from torusrun.orchestrator.run.folder.claim import Superseded
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.log_times import Recorder, index_of
from torusrun.orchestrator.run.folder.records import End, is_done
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.attempt_plan import with_former_grid
from torusrun.orchestrator.run.plan.host_order import ordered
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.orchestrator.run.plan.roles import with_services
from torusrun.orchestrator.run.state import depends
from torusrun.orchestrator.schedulers import interface
from torusrun.orchestrator.schedulers.launchers import Launcher
from torusrun.training.reporting.output import never_fail

LOOK_S = 2.0  # between looks for a newer attempt


def main() -> None:
    os.umask(private.UMASK)
    attempt = Attempt(Path(sys.argv[1]))
    run = attempt.run
    try:
        site = read_attempt(run, attempt.number).plan.site
        own = in_job.read(attempt)
        job = own.name if own else schedulers.get(site.scheduler).own_name(os.environ)
    except TorusrunError as error:
        sys.exit(f"torusrun: {error}")
    os.umask(site.umask)
    print(f"torusrun: attempt {attempt.number} of {run.run_id}, job {job}, on {socket.gethostname()}", flush=True)
    times = [Recorder(stream, index_of(path)) for stream, path in ((1, attempt.stdout), (2, attempt.stderr))]
    end = recorded(run, attempt, lambda: Supervisor(run, attempt, times).run(job), own)
    for recorder in times:
        recorder.look(last=True)
    if end.state is not State.COMPLETED:
        sys.exit(f"torusrun: {end.state.value}: {end.reason}")


class Supervisor:
    """Runs one attempt: places and launches its ranks, and determines its end."""

    def __init__(self, run: RunFolder, attempt: Attempt, times: Sequence[Recorder]) -> None:
        self.started_s = time.monotonic()
        self.daemon = Daemon()
        self.folder = run
        self.attempt = attempt
        self.times = times
        self.planned = read_attempt(run, attempt.number)
        self.plan: Plan = self.planned.plan
        self.requests = StopRequests(run, attempt)
        self.job = in_job.read(attempt) or InJob("", time.time() + self.plan.run.time_s)
        self.held = RunFolder(Path(self.job.held)) if self.job.held else None
        self.limit_s = self.job.left_s
        self.looked_s = 0.0
        self.scheduler = schedulers.get(self.plan.site.scheduler)
        process.die_with_parent(signal.SIGTERM)  # the job's shell, the only process that waits for the supervisor

    def run(self, job: str) -> End:
        """The attempt's end."""
        try:
            return self._run(job)
        except Superseded as error:
            return ended(How.SUPERSEDED, why=error)
        except TorusrunError as error:
            return failed(error)

    def _run(self, job: str) -> End:
        unmet = depends.unmet(ledger.events(self.folder.ledger), self.attempt.number)
        if unmet:  # some schedulers start it
            how = unmet[1].value if unmet[1] else "not known to have ended"
            return ended(How.DROPPED, awaited=unmet[0], state=how)
        claim.take(self.folder, self.attempt.number)
        self.hosts = interface.hosts_of(self.scheduler)
        self.here = interface.this_host_of(self.scheduler, self.hosts)
        write_text(self.attempt.pulse, self.here + "\n")
        earlier = wait_for_earlier(self.folder, self.attempt.number, self.plan.site.kill_after_s, self._asked)
        if end := earlier or settled_end(self.folder, self.attempt):
            return end
        for number in range(1, self.attempt.number):  # of which the supervisor was killed
            end_remains(self.folder.attempt(number), self.plan)
        forget_first(self.folder, self.attempt)
        plan = beside_ready(self.planned.plan, self.folder, self._asked)
        if isinstance(plan, End):
            return plan
        self.planned, self.plan = replace(self.planned, plan=plan), plan
        starter = launcher(self.plan, os.environ)
        hosts = self._sound_hosts(starter)
        if isinstance(hosts, End):
            return hosts
        placement = self._place(hosts)
        images = image_kept.all_kept(self.folder, self.plan.run.image)
        program = prepare(self.plan, self.folder, self.attempt, placement, images, starter)
        if images and not copied_to_nodes(self.plan.site) and (end := made_ready(images, self._asked)):
            return end
        reason = self.plan.chosen.reason if self.plan.chosen else ""
        dims, hosts = placement.grid.dims, tuple(placement.hosts)
        ledger.append(self.folder.ledger, Started(self.attempt.number, job, hosts, dims, reason))
        hooks.started(self.folder, self.attempt.number, self.plan)
        running = Running(
            self.plan,
            self.folder,
            self.attempt,
            placement,
            program=program,
            launcher=self._launched(starter, images.get(self.plan.run.image or "")),
            asked=self._asked,
            stop_signal=starter.stop_signal,
            here=self.here,
        )
        code = running.watch()
        if running.hang and not is_done(self.attempt):
            return running.hang
        evidence = self._evidence(running, code)
        # After the evidence: the ranks may have been asked to stop, and have ended, before the supervisor was asked.
        end = verdict(evidence, running.stop or self.requests.told or self.requests.cancelled())
        return end if self.scheduler.traits.one_machine else self.daemon.blamed(end, self.here)

    def _launched(self, starter: Launcher, image: Image | None) -> subprocess.Popen[bytes]:
        return process.start(
            command(self.plan, self.attempt, starter, image=image),
            own_group=True,
            cwd=self.attempt.folder,
            parent_death=signal.SIGTERM,
            environment=environment(self.plan, self.attempt, starter, os.environ),
        )

    def _evidence(self, running: Running, code: int | None) -> Evidence:
        ranks = running.ranks
        return Evidence(
            running.placement,
            ranks.ends,
            stayed=running.stayed,
            here=self.here,
            told=ranks.told,
            error=ranks.error,
            launcher=ranks.launcher_words(),
            launcher_code=code,
            step=gather.known_step(self.folder, self.attempt),
            done=is_done(self.attempt),
            judges=running.services.judges,
            needs_record=running.program.records_done,
            says_later=running.program.says_later,
        )

    def _sound_hosts(self, starter: Launcher) -> Sequence[str] | End:
        """The allocated hosts that a preflight finds sound; the attempt's end if those are too few.

        A job that begins another attempt has had its preflight.
        """
        hosts = without(self.hosts, self.job.lost)
        if not self.plan.has_preflight or self.job.checked:
            return hosts
        return hooks.sound_hosts(self.plan, self.folder, self.attempt, hosts, starter, self._asked)

    def _place(self, hosts: Sequence[str]) -> Placement:
        nodes = self.plan.all_nodes
        if len(hosts) > nodes:
            hosts = spared(hosts, memory.bad(self.plan.run.site), nodes)
        if not self.plan.site.topology:
            hosts = hosts[:nodes]
        order = ordered(with_former_grid(self.planned, ledger.events(self.folder.ledger)), hosts)
        if order.unordered:
            print(f"torusrun: the hosts keep the scheduler's order: {order.unordered}", file=sys.stderr, flush=True)
        self.plan = order.plan
        if self.plan.chosen:
            print(f"torusrun: grid {self.plan.grid}: {self.plan.chosen.reason}", flush=True)
        placement = place(self.plan.grid, order.hosts[: self.plan.run.nodes], self.plan.ranks_per_node)
        return with_services(self.plan.run, self.plan.site, placement, hosts)

    def _asked(self) -> End | None:
        """The attempt's end if it has to stop now: on request, at its time limit, or for a newer attempt; else None."""
        now_s = time.monotonic()
        for recorder in self.times:
            recorder.look()
        if now_s > self.started_s + self.limit_s - self.plan.stop_before_s:
            near = ended(How.HOLD_NEAR if self.held else How.TIME_NEAR, limit_s=self.plan.run.time_s)
            self.requests.told = self.requests.told or near
        return self.requests.look() or self._superseded(now_s)

    def _superseded(self, now_s: float) -> End | None:
        if now_s < self.looked_s + LOOK_S:
            return None
        self.looked_s = now_s
        try:
            claim.check(self.folder, self.attempt.number)
        except Superseded as error:
            return ended(How.SUPERSEDED, why=error)
        return None


if __name__ == "__main__":
    never_fail()
    main()
