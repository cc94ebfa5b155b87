"""How fast the ranks get their images: from the file system, from the cache of the system, and decoded.

All ranks read at the same time, as in a training. Only data sets that read ahead are measured: the time of others is in
that of a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist

from torusrun.training.collectives import device as devices
from torusrun.training.complete import lacks
from torusrun.training.config import Config
from torusrun.training.data.feed import Feed
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.parts import Parts
from torusrun.training.progress import Progress
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.reporting import events
from torusrun.training.sync.buckets.cost_table import slowest_s

BATCHES = 5


def times(config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> Iterator[dict[str, object]]:
    """The times of some batches, each of other samples: read, read again, and decoded from the cache.

    `cpu_s` is the time of cores for decoding: of a rank, in all its threads.
    """
    data, course = parts.data, parts.course
    feed = Feed(data, course, ranks, config.train, device)
    if not feed.reads_ahead:
        return
    reads = () if lacks(data, DataSet, "read") else (events.READ, events.READ_AGAIN)
    found: dict[str, list[float]] = {name: [0.0] for name in (*reads, events.DECODE, "cpu")}  # the first never counts
    progress = Progress()
    while len(found["cpu"]) <= BATCHES and not course.finished(progress):
        samples = feed.samples(progress)
        for name in reads:
            found[name].append(timed_s(partial(data.read, samples), device))
        began_s = time.process_time()
        found[events.DECODE].append(timed_s(partial(feed.alone, progress), device))
        found["cpu"].append(time.process_time() - began_s)
        progress = progress.after(course.batch_at(progress))
    row = {"data": config.train.data.name, "batch": course.batch_at(Progress()) // ranks.world}
    seconds = {name: slowest_s(each, device) for name, each in found.items()}
    cpu_s = seconds.pop("cpu")
    for name, time_s in seconds.items():
        yield {**row, "operation": name, "time_s": time_s, **({"cpu_s": cpu_s} if name == events.DECODE else {})}


def timed_s(act: Callable[[], object], device: torch.device) -> float:
    """The seconds of an act that all ranks begin together."""
    dist.barrier()
    started_s = time.perf_counter()
    act()
    devices.wait(device)
    return time.perf_counter() - started_s
