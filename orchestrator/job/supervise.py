"""The supervisor of an attempt, on the first node: places the ranks, launches them, watches, and says how it ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from orchestrator import defect, images, process, schedulers
from orchestrator.errors import SiteError, TorusrunError
from orchestrator.images import Image
from orchestrator.job import stage
from orchestrator.job.launch import command, environment
from orchestrator.job.prepare import prepare
from orchestrator.job.verdict import StopRequest, cause, verdict
from orchestrator.placement.mapping import Placement, place
from orchestrator.planning import Plan, arranged, read_plan
from orchestrator.runs import ledger, metrics
from orchestrator.runs.files import read_json
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.runs.lines import last_lines
from orchestrator.runs.records import End, RankEnd
from orchestrator.states import State

POLL_S = 0.25
FOLLOW_S = 5.0  # how long the other ranks may take to notice that one has failed
LARGEST_QUOTE = 300
LARGEST_TAIL_BYTES = 65_536


def supervise(run: RunFolder, number: int, job: str) -> End:
    """Run one attempt to its end and record it, whatever happens."""
    attempt = run.attempt(number)
    try:
        end = Supervisor(run, attempt).run(job)
    except TorusrunError as error:
        end = End(State.FAILED, str(error))
    except Exception as error:
        traceback.print_exc()
        end = End(State.FAILED, defect.report(error, ["supervise"]))
    end.write(attempt.end)
    if end.certain:
        ledger.append(run.ledger, "ended", number, state=end.state.value, reason=end.reason)
    return end


class Supervisor:
    """One attempt from its hosts to its end."""

    def __init__(self, run: RunFolder, attempt: Attempt) -> None:
        self.started_s = time.monotonic()
        self.folder = run
        self.attempt = attempt
        self.plan: Plan = read_plan(run, attempt.number)
        self.stop: StopRequest | None = None
        self.ledger_size = 0
        self.ends: dict[int, RankEnd] = {}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._told_to_end)

    def run(self, job: str) -> End:
        if missing := self._missing():
            return End(State.CANCELLED, f"dropped by its dependency, it never ran: {missing}")
        placement = self._place()
        image = images.kept(self.folder)
        prepare(self.plan, self.folder, self.attempt, placement, image)
        if image:
            self._ready(image)
        ledger.append(
            self.folder.ledger,
            "started",
            self.attempt.number,
            job=job,
            hosts=placement.hosts,
            grid=[placement.grid.x, placement.grid.y],
        )
        launcher = process.start(
            command(self.plan, self.attempt, placement),
            new_session=True,
            cwd=self.attempt.folder,
            parent_death=signal.SIGTERM,
            environment=environment(self.plan, self.attempt, os.environ),
        )
        code = self._watch(launcher)
        self._read_ends()
        ends = list(self.ends.values())
        stop = self.stop or self._cancelled()  # the ranks may have been told, and have ended, before the supervisor was
        said, done = self._last_words(cause(ends)), self._done()
        return verdict(placement.grid.ranks, ends, stop, code, said, self._progress(), done=done)

    def _ready(self, image: Image) -> None:
        """Send the image to the nodes, which verify their copies, or verify the one that all ranks start."""
        folder = self.plan.site.container.stage
        if not folder:
            images.verify(image)
        elif self.plan.site.scheduler == "slurm":
            stage.broadcast(image, folder, self.plan.python, self.attempt.folder)

    def _missing(self) -> str | None:
        """The run that this attempt waited for and that did not complete; some schedulers start it all the same."""
        submitting = ledger.last(ledger.events(self.folder.ledger), "submitting", self.attempt.number)
        for folder in submitting.details.get("after", ()) if submitting else ():
            ends = [event for event in ledger.events(RunFolder(Path(folder)).ledger) if event.kind == "ended"]
            if not ends or ends[-1].details["state"] != State.COMPLETED.value:
                how = ends[-1].details["state"] if ends else "not known to have ended"
                return f"{Path(folder).name} is {how}"
        return None

    def _place(self) -> Placement:
        scheduler = schedulers.get(self.plan.site.scheduler)
        hosts = scheduler.hosts(os.environ, socket.gethostname())
        return place(self.plan.grid, self._ordered(hosts), self.plan.ranks_per_node)

    def _ordered(self, hosts: list[str]) -> Sequence[str]:
        """The hosts by the network where the site tells of it. An order is no reason to lose an allocation."""
        try:
            arrangement = arranged(self.plan, hosts)
        except SiteError as error:
            reason = f"the hosts keep the scheduler's order: {error}"
            print(f"torusrun: {reason}", file=sys.stderr, flush=True)
            ledger.append(self.folder.ledger, "unordered", self.attempt.number, reason=reason)
            return hosts
        return arrangement.hosts if arrangement else hosts

    def _told_to_end(self, number: int, frame: FrameType | None) -> None:
        reason = f"told to end by {signal.Signals(number).name} from outside"
        self.stop = self.stop or self._cancelled() or StopRequest(State.CANCELLED, reason, certain=False)

    def _cancelled(self) -> StopRequest | None:
        """The user's own request to cancel this attempt, if there is one."""
        asked = ledger.last(ledger.events(self.folder.ledger), "cancel_requested", self.attempt.number)
        return StopRequest(State.CANCELLED, "cancelled by its user", certain=True) if asked else None

    def _cancelled_meanwhile(self) -> StopRequest | None:
        """As `_cancelled`, at the price of a stat while nobody writes to the ledger.

        Some schedulers give the processes of a job that they end little time or none, so a cancellation is first asked
        for here.
        """
        size = self.folder.ledger.stat().st_size
        if size == self.ledger_size:
            return None
        self.ledger_size = size
        return self._cancelled()

    def _watch(self, launcher: subprocess.Popen[bytes]) -> int:
        """Wait for the launcher, passing requests to stop on, until it ends or has to be ended. Its exit code."""
        deadline_s = self.started_s + self.plan.run.time_s - self.plan.site.stop_before_s
        stopping_s = failed_s = float("inf")
        while launcher.poll() is None:
            now_s = time.monotonic()
            if now_s > deadline_s and not self.stop:
                self.stop = StopRequest(
                    State.TIMEOUT, f"its time limit of {self.plan.run.time_s:g} s is near", certain=True
                )
            self.stop = self.stop or self._cancelled_meanwhile()
            if self.stop and stopping_s == float("inf"):
                stopping_s = now_s
                launcher.send_signal(signal.SIGUSR2)
            self._read_ends()
            if failed_s == float("inf") and cause(list(self.ends.values())):
                failed_s = now_s
            if now_s > min(failed_s + FOLLOW_S, stopping_s + self.plan.site.kill_after_s + FOLLOW_S):
                os.killpg(launcher.pid, signal.SIGKILL)
            time.sleep(POLL_S)
        return launcher.wait()

    def _read_ends(self) -> None:
        for entry in os.scandir(self.attempt.ranks):
            rank = entry.name.removesuffix(".end.json")
            if rank.isdigit() and int(rank) not in self.ends:
                self.ends[int(rank)] = RankEnd.read(self.attempt.rank_end(int(rank)))

    def _done(self) -> bool:
        """Whether the training of this attempt has recorded that it is done: exit codes alone say too little."""
        try:
            record = read_json(self.attempt.done)
        except SiteError:
            return False
        return isinstance(record, dict) and record.get("attempt") == self.attempt.number

    def _last_words(self, end: RankEnd | None) -> str:
        """The last line that the rank which ended the attempt wrote."""
        if end is None:
            return ""
        try:
            lines, rest = last_lines(self.attempt.rank_log(end.rank), LARGEST_TAIL_BYTES)
        except OSError:
            return ""
        said = [line for line in (*lines, rest) if line.strip()]
        return said[-1].decode(errors="replace").strip()[:LARGEST_QUOTE] if said else ""

    def _progress(self) -> str:
        """' after step 57', or nothing before the first."""
        row = metrics.newest(metrics.read(self.folder.metrics), "step")
        return f" after step {row['step']}" if row and row["attempt"] == self.attempt.number else ""
