"""Follows the program of a rank to its end, and handles the requests to its wrapper until then."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from torusrun.orchestrator.base import proc, process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.at_work import host_pulse_s
from torusrun.orchestrator.run.folder.log_times import Recorder

if TYPE_CHECKING:
    from torusrun.orchestrator.job.ranks.service import Service

Known = TypeVar("Known")
POLL_S = 0.2
NEWER_S = 15.0  # between looks for a newer attempt; the supervisor also looks, but may have ended
PY_SPY_S = 3.0  # the supervisor waits a little longer for an answer
THREAD = re.compile(r"^Thread (\d+) .*$")
FRAME = re.compile(r"^    (.+) \((.+):(\d+)\)$")


class RankProgram:
    """The program of a rank from each start to its end, and the requests to its wrapper meanwhile and between."""

    def __init__(self, rank: Rank, times: Recorder, service: Service | None = None) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.attempt, self.rank, self.times = rank.attempt, rank.number, times
        self.service = service
        self.program, self.kill_after_s = rank.role.program, rank.order.kill_after_s
        self.pulse_s = time.monotonic() if rank.slot.local_rank == 0 else float("inf")
        self.every_s = host_pulse_s(len(rank.placement.hosts))
        self.newer_s = time.monotonic()
        self.told_s: float | None = None
        self.noted = self.asked_where = False
        # A service is needed until the main role has ended: it does not follow a request that all ranks get.
        self.needed = rank.role.service and not rank.role.each
        self._listen()

    def _listen(self) -> None:
        """Handle the requests to the wrapper; a start of the program may have ignored some (beginning.py)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)
        # A handler, since the program would inherit an ignored signal.
        signal.signal(signal.SIGUSR2, (lambda number, frame: None) if self.needed else self._ask_to_stop)
        signal.signal(signal.SIGUSR1, self._ask_where)

    def wait(self, child: subprocess.Popen[bytes]) -> tuple[int, bool]:
        """(the exit code, negative for a signal; whether the program had been asked to stop)."""
        self.child = child
        self._listen()
        if self.told_s:  # between two starts
            self._pass_on()
        if self.service:
            self.service.begin()
        while True:
            try:
                code = child.wait(timeout=POLL_S)
                self._kill()
                self.times.look(last=True)
                if self.service:
                    self.service.end()
                self.child = None
                return code, self.told_s is not None
            except subprocess.TimeoutExpired:
                self._look()

    def until(self, ready: Callable[[], Known | None]) -> Known | None:
        """The value of `ready` once it is true, between two starts; None on a request to stop before."""
        while not self.told_s:
            if value := ready():
                return value
            self._look()
            time.sleep(POLL_S)
        return None

    def told_within(self, limit_s: float) -> bool:
        """Whether a request to stop has come, or comes within this time."""
        until_s = time.monotonic() + limit_s
        self.until(lambda: time.monotonic() > until_s)
        return self.told_s is not None

    def _look(self) -> None:
        """Handle the requests to the wrapper, and show that it lives."""
        self.times.look()
        if self.service:
            self._serve(self.service)
        if self.told_s and not self.noted:
            self.noted = True
            self._note(self.attempt.rank_told(self.rank))
        if self.told_s and time.monotonic() - self.told_s > self.kill_after_s:
            self._kill()
        if time.monotonic() > self.pulse_s + self.every_s:
            self.pulse_s = time.monotonic()
            with contextlib.suppress(OSError):  # the record's time is the host's sign of life
                os.utime(self.attempt.rank_start(self.rank))
        if time.monotonic() > self.newer_s + NEWER_S:
            self.newer_s = time.monotonic()
            if self._is_superseded():
                self._kill()
        if self.asked_where:
            self.asked_where = False
            self._answer()

    def _serve(self, service: Service) -> None:
        """Stop a service whose main role is over, and end a service that is not ready in time."""
        if service.told(time.monotonic()):
            self._ask_to_stop(signal.SIGUSR2, None)
        if service.failed:
            self._kill()

    def _answer(self) -> None:
        """Record where the program is, for the supervisor; of a wrapper between two starts, where that is."""
        program = self.child.pid if self.child else os.getpid()
        shown = self.program.shows_stack or by_py_spy(program, self.attempt.rank_log(self.rank))
        disk, work, state = proc.waits_for_disk(program), proc.work_of(program), proc.state_of(program)
        if work.stopped and state == "S":  # a shell that waits for it
            state = "T"
        self._note(self.attempt.rank_seen(self.rank), process=state, disk=disk, stack=shown, work=asdict(work))

    def _is_superseded(self) -> bool:
        """Whether a newer attempt has begun. Else this rank might wait for ever for a rank on a silent host."""
        try:
            claim.check(self.attempt.run, self.attempt.number)
        except claim.Superseded as error:
            print(f"torusrun: {error}", file=sys.stderr, flush=True)
            return True
        return False

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        """Pass a request to stop on to the program, once, as the signal after which it checkpoints and stops."""
        if self.told_s is None:
            self._pass_on()
            self.told_s = time.monotonic()

    def _pass_on(self) -> None:
        self._send(self.program.stop_signal)
        self._send(signal.SIGCONT)  # a stopped program handles no signal, and shows no stack

    def _ask_where(self, number: int, frame: FrameType | None) -> None:
        """On the supervisor's query where the ranks are: the program writes its stack to its log, if it can."""
        if self.program.shows_stack:
            self._send(signal.SIGUSR1)
        self.asked_where = True

    def _send(self, number: int) -> None:
        if self.child and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child.pid, number)  # in an image, the runtime passes it on

    def _kill(self) -> None:
        """End the program and, if it has its own process group, the processes that it started."""
        if self.child is None:
            self.told_s = self.told_s or time.monotonic()
            return
        self.child.kill()
        if self.program.own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)

    def _note(self, path: Path, **values: Any) -> None:
        """Write a record for the supervisor. Errors are ignored: the supervisor notices a full disk itself."""
        with contextlib.suppress(TorusrunError):
            write_json(path, {"t": time.time(), **values})


def by_py_spy(pid: int, log: Path) -> bool:
    """Append the stacks of a Python's threads to `log`, as faulthandler would; False without py-spy or a Python."""
    py_spy = which("py-spy")
    if not py_spy:
        return False
    with contextlib.suppress(SiteError, OSError):
        command = [py_spy, "dump", "--full-filenames", "--nonblocking", "--pid", str(pid)]
        dump = as_faulthandler(process.run(command, timeout_s=PY_SPY_S).stdout, pid)
        with open(open_regular(log, os.O_WRONLY | os.O_APPEND), "ab") as file:
            return file.write(dump.encode()) > 0
    return False


def as_faulthandler(dump: str, main: int) -> str:
    """py-spy's output in the format of faulthandler, with the main thread last."""
    threads: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in dump.splitlines():
        if thread := THREAD.match(line):
            lines = threads.setdefault(int(thread[1]), [f"Thread 0x{int(thread[1]):016x} (most recent call first):"])
        elif frame := FRAME.match(line):
            lines.append(f'  File "{frame[2]}", line {frame[3]} in {frame[1]}')
    ordered = sorted(threads, key=lambda number: number == main)
    return "".join(f"{line}\n" for number in ordered for line in threads[number])
