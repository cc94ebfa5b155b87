"""Writes the load of this node every few seconds, in a thread: the wrapper must not wait for a faulty disk or GPU."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.job.load.gpus import DRIVER, GpuWatch
from torusrun.orchestrator.job.load.step_times import BeatFile, StepsTold, address
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.at_work import NodeLoad
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.files import job_memory

LEAST_S = 5.0
MOST_PER_S = 50  # records that all nodes of a run write to their shared file system
FIRST_S = 1.0
END_S = 0.5  # how long the end waits for a record that is being written
WITHOUT_GUESTS = 8  # user, nice, system, idle, iowait, irq, softirq, steal; user includes the time of guests
IDLE = (3, 4)  # idle, iowait


@dataclass(frozen=True)
class CpuTime:
    """The time that some cores worked, and all their time, in clock ticks since the start of the node."""

    worked: int
    all: int

    def share(self, before: CpuTime) -> float | None:
        """The share of the time since `before` in which the cores worked; None if no time has passed."""
        passed = self.all - before.all
        return min(max((self.worked - before.worked) / passed, 0.0), 1.0) if passed > 0 else None


def cpu_time(stat: str, cores: Collection[int]) -> CpuTime:
    """The time of these cores together, from the text of /proc/stat. Raises ValueError if it is cut off."""
    worked = total = 0
    for line in stat.splitlines():
        name, *words = line.split() or [""]
        if not name.startswith("cpu"):
            break
        if name[3:].isdigit() and int(name[3:]) in cores:
            ticks = [int(word) for word in words[:WITHOUT_GUESTS]]
            total += sum(ticks)
            worked += sum(ticks) - sum(ticks[n] for n in IDLE if n < len(ticks))
    return CpuTime(worked, total)


@dataclass(frozen=True)
class Look:
    """The counters of a node; None for those that it did not report."""

    cpu: CpuTime | None = None
    memory: tuple[int, int] | None = None  # used, and all


def look(cores: Collection[int], root: Path = Path("/")) -> Look:
    """The current counters. A counter that the node does not report raises nothing."""
    cpu = memory = None
    with contextlib.suppress(OSError, ValueError):
        cpu = cpu_time((root / "proc/stat").read_text(), cores)
    with contextlib.suppress(OSError, ValueError):
        memory = job_memory.memory(root)
    return Look(cpu, memory)


class Monitor:
    """`with Monitor(...):` writes the load of the job's `cores` and `ranks` here into the record of the first rank."""

    def __init__(self, attempt: Attempt, ranks: Sequence[int], nodes: int, cores: Collection[int]) -> None:
        self._attempt, self._path, self._ranks, self._cores = attempt, attempt.node_load(ranks[0]), ranks, cores
        self._every_s = max(LEAST_S, nodes / MOST_PER_S)
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        os.close(self._stopping)
        self._thread.join(END_S)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            from torusrun.orchestrator.base.defect import report

            print(f"torusrun: {report(error, ['load'])}", file=sys.stderr, flush=True)
        finally:
            os.close(self._stop)

    def _watch(self) -> None:
        steps = StepsTold(address(self._attempt), self._ranks, BeatFile(self._attempt.beat))
        gpus = GpuWatch(self._every_s) if DRIVER.exists() else None
        with contextlib.closing(steps), contextlib.closing(gpus) if gpus else contextlib.nullcontext():
            before, until_s = look(self._cores), time.monotonic() + random.uniform(FIRST_S, self._every_s)
            while steps.wait(until_s, self._stop):
                now = look(self._cores)
                used, total = now.memory or (None, None)
                load = NodeLoad(
                    at_s=round(time.time(), 3),
                    every_s=self._every_s,
                    cores=len(self._cores),
                    busy=now.cpu.share(before.cpu) if now.cpu and before.cpu else None,
                    memory_bytes=used,
                    memory_total_bytes=total,
                    gpus=gpus.newest() if gpus else (),
                    ranks=steps.newest(),
                )
                with contextlib.suppress(TorusrunError):  # a full disk
                    load.write(self._path)
                before, until_s = now, max(until_s, time.monotonic() - self._every_s) + self._every_s


def of_node(attempt: Attempt, placement: Placement, host: str, cores: Collection[int]) -> Monitor:
    """The monitor of this node, which is `host` of the placement, for the job's `cores` on it.

    Raises SiteError if no rank is placed here.
    """
    here = [slot.rank for slot in placement.slots if slot.host == host]
    if not here:
        raise SiteError(f"{attempt.placement}: no rank is placed on {host}")
    return Monitor(attempt, here, len(placement.hosts), cores)
