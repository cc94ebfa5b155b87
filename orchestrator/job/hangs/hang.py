"""Finds the rank that holds up a run without progress, from the wrappers' answers and the ranks' stacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.proc import Work
from torusrun.orchestrator.job.hangs.patience import CONFIRM_S, Symptom
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.how_ended import WAITS_FOR_DISK, How, ended, listed
from torusrun.orchestrator.run.folder.records import End

NOT_BEGUN = "not begun"
STANDS = {
    NOT_BEGUN: "its program has not begun",
    "T": "it is stopped, as by SIGSTOP",
    "t": "it is stopped by a debugger",
    "D": WAITS_FOR_DISK,
    "Z": "it has ended, and its parent has not noticed",
    "": "its process is gone",
}
STOPPED = ("T", "Z", "")
STACK = re.compile(r"^Current thread 0x|^Thread 0x|^Stack \(most recent call first\)")
FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (\S+)')
# Files of exchanges with other ranks, wherever they are in a stack.
WAITS_FOR_OTHERS = re.compile(
    r"torch/distributed/(distributed_c10d|rendezvous|_functional_collectives)\.py"
    r"|training/(collectives|meeting)/|training/step/late\.py"
)
# Files that call model, optimizer or disk, too: only where they are innermost does their rank wait, in a C function.
WAITS_INNERMOST = re.compile(r"torch/distributed/(?!checkpoint/|optim/)")
# What may take longer than a step: reading data, writing files, waiting for a program, and activities that their rank
# could not announce.
LONG_WORK = re.compile(r"training/(data|files|checkpoint|evaluation|reporting)/|torch/utils/data/|/subprocess\.py:")
# Between two answers, less than this is what idle threads need to look for news, and what shows their stacks.
BUSY = 0.01  # of a core
LEAST_READ_BYTES = 4096
LEAST_WRITTEN_BYTES = 1 << 20


@dataclass(frozen=True)
class Where:
    """A rank's answer to a query."""

    state: str | None = None  # of its process as in proc(5); None without an answer, NOT_BEGUN without a start
    stack: Sequence[str] = ()  # innermost frame first
    disk: bool = False  # whether one of its threads, or of the processes that it started, waits for a disk
    work: Work | None = None  # what all of them have done

    @property
    def waits_for_others(self) -> bool:
        """Whether its known frames show an exchange with other ranks."""
        innermost = self.stack[0] if self.stack else ""
        return any(WAITS_FOR_OTHERS.search(frame) for frame in self.stack) or bool(WAITS_INNERMOST.search(innermost))

    def works(self, before: Where, idle_s: float) -> bool:
        """Whether it is at work, or waits for a disk or a debugger.

        `before` is its answer to an earlier query, `idle_s` how long the attempt had been without progress.
        """
        if self.disk or self.state in (NOT_BEGUN, "D", "t"):
            return True
        if self.waits_for_others:
            return False
        if self.state == "R" or any(LONG_WORK.search(frame) for frame in self.stack):
            return True
        moved = self.stack and before.stack and before.stack != self.stack
        return bool(moved) or (self.work is not None and _continues(self.work, before.work, idle_s))


def _continues(now: Work, before: Work | None, idle_s: float) -> bool:
    """Whether the processes of a rank have begun, computed, read or written something in the time between."""
    if now.at_s - now.youngest_s < idle_s + CONFIRM_S:  # begun since the last sign of progress
        return True
    if before is None:
        return False
    computed = now.cpu_s - before.cpu_s > BUSY * (now.at_s - before.at_s)
    read, written = now.read_bytes - before.read_bytes, now.written_bytes - before.written_bytes
    return computed or read >= LEAST_READ_BYTES or written >= LEAST_WRITTEN_BYTES or now.pids != before.pids


def symptom(
    ranks: Collection[int], where: Mapping[int, Where], before: Mapping[int, Where], idle_s: float = 0.0
) -> Symptom:
    """What the answers of the `ranks` that run show, beside those to an earlier query.

    They came when the attempt had been without progress for `idle_s`.
    """
    known = [(where.get(n, Where()), before.get(n, Where())) for n in ranks]
    if any(now.state in STOPPED for now, _ in known):
        return Symptom.STOPPED
    if all(now.state is None for now, _ in known):
        return Symptom.UNKNOWN  # the launcher may not have passed the query on, or all have ended
    if any(now.state is None for now, _ in known):
        return Symptom.SILENT
    if any(now.works(earlier, idle_s) for now, earlier in known):
        return Symptom.WORKING
    return Symptom.WAITING if all(now.stack for now, _ in known) else Symptom.UNSEEN


@dataclass(frozen=True)
class Pause:
    """An attempt without progress for `idle_s` seconds after `step` (None before the first), and its limit."""

    idle_s: float
    limit_s: float
    step: int | None = None
    doing: str = ""


def hung(placement: Placement, where: Mapping[int, Where], pause: Pause, over: Collection[int] = ()) -> End:
    """The end of an attempt by a pause, from the answers of its ranks without those that are `over`."""

    def end(how: How, ranks: Sequence[int] = (), **evidence: Any) -> End:
        during = {"idle_s": pause.idle_s, "limit_s": pause.limit_s, "doing": pause.doing, **evidence, "stacks": shown}
        return ended(how, placement, ranks=ranks, step=pause.step, **during)

    ranks = [n for n in range(placement.grid.ranks) if n not in over]
    known = {n: where.get(n, Where()) for n in ranks}
    traced = [n for n in ranks if known[n].stack]
    shown = listed(traced) if traced else ""
    if stuck := [n for n in ranks if known[n].state in STANDS] or [n for n in ranks if known[n].disk]:
        return end(How.RANK_STANDS, stuck, process=STANDS.get(known[stuck[0]].state or "", STANDS["D"]))
    mute = [n for n in ranks if known[n].state is None]
    if len(mute) == len(ranks):
        return end(How.NO_WRAPPER)
    if mute:
        on_host = _whole_host(placement, ranks, mute)
        return end(How.HOST_NO_ANSWER, on_host) if on_host else end(How.WRAPPER_SILENT, mute)
    apart = [n for n in ranks if known[n].stack and not known[n].waits_for_others]
    if apart and len(apart) < len(ranks):
        return end(How.RANK_APART, apart, frame=known[apart[0]].stack[0])
    return end(How.ALL_WAIT, first_at=next((known[n].stack[0] for n in ranks if known[n].stack), ""))


def silent(placement: Placement, silences_s: Mapping[str, float], limit_s: float, step: int | None) -> End | None:
    """The end of an attempt with hosts that are silent for more than `limit_s`; None if there are none.

    `silences_s` has for each host how many seconds longer it is silent than the host that was heard last.
    """
    hosts = [host for host, silent_s in silences_s.items() if silent_s > limit_s]
    if not hosts:
        return None
    longest_s = max(silences_s[host] for host in hosts)
    return ended(How.HOST_SILENT, placement, hosts=hosts, step=step, silent_s=longest_s)


def _whole_host(placement: Placement, ranks: Sequence[int], mute: Sequence[int]) -> list[int]:
    """The `ranks` on the first mute rank's host if they are several, and all mute: the host does not answer."""
    host = placement.slots[mute[0]].host
    on_host = [n for n in ranks if placement.slots[n].host == host]
    return on_host if len(on_host) > 1 and set(on_host) <= set(mute) else []


def stack(log: Sequence[str]) -> list[str]:
    """The frames of the main thread in faulthandler's last stack, as 'file:line function'; [] without a stack.

    faulthandler writes the running thread, or else the main thread, last.
    """
    begins = [number for number, line in enumerate(log) if STACK.match(line)]
    if not begins:
        return []
    frames = (FRAME.match(line) for line in log[begins[-1] + 1 :])
    return [f"{match[1]}:{match[2]} {match[3]}" for match in frames if match]
