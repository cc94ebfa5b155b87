"""Writes the load of this node every few seconds, in a thread: the wrapper must not wait for a faulty disk or GPU."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.job.load import cores, interfaces
from torusrun.orchestrator.job.load.gpus import DRIVER, GpuWatch
from torusrun.orchestrator.job.load.step_times import BeatFile, StepsTold, address
from torusrun.orchestrator.job.start.launch_order import LaunchOrder
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.at_work import NodeLoad
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.files import job_memory

LEAST_S = 5.0
MOST_PER_S = 50  # records that all nodes of a run write to their shared file system
FIRST_S = 1.0
END_S = 0.5  # how long the end waits for a record that is being written


@dataclass(frozen=True)
class Watched:
    """The parts of this node whose load is recorded: the job's cores, its network, and its ranks."""

    cores: Collection[int]
    ranks: Collection[int]
    interface: str | None
    hcas: Collection[str]


class Monitor:
    """`with Monitor(...):` writes the load of this node into the record of the attempt's `rank`."""

    def __init__(self, attempt: Attempt, rank: int, nodes: int, watched: Watched) -> None:
        self._attempt, self._path, self._watched = attempt, attempt.node_load(rank), watched
        self._every_s = max(LEAST_S, nodes / MOST_PER_S)
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        steps = StepsTold(address(self._attempt), self._watched.ranks, BeatFile(self._attempt.beat))
        gpus = GpuWatch(self._every_s) if DRIVER.exists() else None
        with contextlib.closing(steps), contextlib.closing(gpus) if gpus else contextlib.nullcontext():
            before, until_s = look(self._watched), time.monotonic() + random.uniform(FIRST_S, self._every_s)
            while steps.wait(until_s, self._stop):
                now = look(self._watched)
                load = NodeLoad(
                    at_s=round(time.time(), 3),
                    every_s=self._every_s,
                    cores=len(self._watched.cores),
                    **means(before, now),
                    gpus=gpus.newest() if gpus else (),
                    ranks=steps.newest(),
                )
                with contextlib.suppress(TorusrunError):  # a full disk
                    load.write(self._path)
                before, until_s = now, max(until_s, time.monotonic() - self._every_s) + self._every_s


def of_node(
    attempt: Attempt, order: LaunchOrder, placement: Placement, host: str, *, cores: Collection[int]
) -> Monitor:
    """The monitor of this node, which is `host` of the placement, recorded under the first rank that is placed here.

    `cores` are the job's cores on this node. Raises SiteError if no rank is placed here.
    """
    here = [slot.rank for slot in placement.slots if slot.host == host]
    if not here:
        raise SiteError(f"{attempt.placement}: no rank is placed on {host}")
    return Monitor(attempt, here[0], len(placement.hosts), Watched(cores, here, order.interface, order.hcas))


@dataclass(frozen=True)
class Look:
    """The counters of a node at a time of time.monotonic(); None for those that it did not report."""

    at_s: float
    cpu: cores.CpuTime | None = None
    load: float | None = None
    memory: tuple[int, int] | None = None
    network: interfaces.Counters | None = None


def look(watched: Watched, root: Path = Path("/")) -> Look:
    """The current counters. Raises nothing if the node does not report one."""
    readers: Mapping[str, Callable[[], Any]] = {
        "cpu": lambda: cores.cpu_time((root / "proc/stat").read_text(), watched.cores),
        "load": lambda: cores.load_average((root / "proc/loadavg").read_text()),
        "memory": lambda: job_memory.memory(root),
        "network": lambda: interfaces.counters(watched.interface, watched.hcas, root),
    }
    found: dict[str, Any] = {}
    for name, read in readers.items():
        with contextlib.suppress(OSError, ValueError):
            found[name] = read()
    return Look(time.monotonic(), **found)


def means(before: Look, now: Look) -> Mapping[str, Any]:
    """The values of a record for the time between two looks."""
    used, total = now.memory or (None, None)
    links = interfaces.rates(before.network or {}, now.network or {}, now.at_s - before.at_s)
    return {
        "busy": now.cpu.share(before.cpu) if now.cpu and before.cpu else None,
        "load": now.load,
        "memory_bytes": used,
        "memory_total_bytes": total,
        "links": tuple(links),
    }
