"""`python -m torusrun.training.measure CONFIG`: measures, in place of a training, the speed of ranks and links.

Rank 0 writes the times as "measured" events into the run's metrics; `torusrun calibrate` fits constants to them. All
ranks compute, and all groups of a link class reduce, at the same time, as they do in a training.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist

from torusrun.training.__main__ import read
from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.collectives import all_reduce
from torusrun.training.collectives import device as devices
from torusrun.training.collectives.interface import DTYPES, AllReduce
from torusrun.training.config import Config, ConfigError, Ranks
from torusrun.training.data.feed import Feed
from torusrun.training.learner import Learner
from torusrun.training.meeting import rendezvous
from torusrun.training.parts import Parts, build_parts, settle
from torusrun.training.progress import Progress
from torusrun.training.recipe.facts import named, program
from torusrun.training.recipe.protocols import DataSet, lacks
from torusrun.training.reporting import events
from torusrun.training.reporting.exits import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_NO_CHECKPOINT
from torusrun.training.reporting.metrics import Metrics
from torusrun.training.reporting.reporter import record_done
from torusrun.training.schedule import Course
from torusrun.training.sync.planner import slowest_s

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
    times_s: dict[str, list[float]] = {name: [0.0] for name in (*reads, events.DECODE, "cpu")}  # the first never counts
    progress = Progress()
    while len(times_s["cpu"]) <= BATCHES and not course.finished(progress):
        samples = feed.samples(progress)
        for name in reads:
            times_s[name].append(timed_s(partial(data.read, samples), device))
        began_s = time.process_time()
        times_s[events.DECODE].append(timed_s(partial(feed.alone, progress), device))
        times_s["cpu"].append(time.process_time() - began_s)
        progress = progress.after(course.batch_at(progress))
    row = {"data": config.train.data.name, "batch": course.batch_at(Progress()) // ranks.world}
    seconds = {name: slowest_s(each, device) for name, each in times_s.items()}
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


SIZES_BYTES = (2**12, 2**16, 2**18, 2**20, 2**22, 2**24)
ENOUGH_S = 1.0  # no larger messages after a message that took so long: they would add nothing new
REPEATS = 7
# Of a training's all-reduce, on the wire: the sizes of most buckets come close together.
REDUCED_BYTES = (*(2**power for power in range(12, 20, 2)), *(2**power for power in range(20, 28)))
MOST_REPEATS, WITHIN_S = 100, 1.0  # of means that take less: a disturbance lasts longer than they do
LONG_S = 0.25  # no larger vectors after a mean that took so long: their bytes alone decide


def main(arguments: list[str]) -> int:
    """Measure as one rank; SIGTERM ends it at once, because it has nothing to save."""
    try:
        config, ranks = read(arguments)
        device = devices.prepare(config.train.device, ranks.local, config.train.precision)
        parts = build_parts(config.train, device)
    except ConfigError as error:
        print(f"torusrun.training.measure: {error}", file=sys.stderr)
        return EXIT_BAD_CONFIG
    rendezvous.join(config, ranks, device)
    settle(parts.optimizer, device)
    metrics = Metrics(config.metrics if ranks.rank == 0 else None, config.attempt)
    metrics.write(events.START, step=0, total_steps=1, world=ranks.world, device=device.type)
    own = (config, ranks, device, parts)
    alone = (_facts(config, parts), *_compute(*own), *times(*own), *_save(*own))  # before many groups exist
    for row in (*alone, *_links(ranks, device), *all_reduces(config, ranks, device)):
        metrics.write(events.MEASURED, step=0, **row)
    recorded = record_done(config, ranks, device, Progress(steps=1))
    if recorded:
        metrics.write(events.DONE, step=1, total_steps=1)
    rendezvous.leave()
    return EXIT_DONE if recorded else EXIT_NO_CHECKPOINT


def _facts(config: Config, parts: Parts) -> dict[str, object]:
    """What only a training can count of the user's own model and data set, for the login node, which has no torch."""
    sizes = [parameter.numel() for parameter in parts.model.parameters()]
    halves = [parts.data.train_samples, parts.data.test_samples]
    return {"counted": named(config.train.model), "tensors": sizes, "of": named(config.train.data), "halves": halves}


def _compute(config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> Iterator[dict[str, object]]:
    """Time a step without its all-reduce, at the run's batch and at twice that: two points give a line.

    A step takes as long as the slowest rank's. The spread of the ranks' own steps says how long more ranks would wait.
    """
    for factor in (1, 2):
        batch = factor * parts.course.phases[0].batch
        course = Course(replace(config.train, batch=batch, phases=()), parts.data.train_samples)
        learner = Learner(config, ranks, device, replace(parts, course=course))
        times_s = [timed_s(learner.step_alone, device) for _ in range(events.MEASURED_STEPS)]
        measured = {"time_s": slowest_s(times_s, device), "ranks": ranks.world, "spread": _spread(times_s, device)}
        train = replace(config.train, compile=learner.form.compiled)
        names = {"model": train.model.name, "program": program(train)}
        yield {**names, "batch": batch // ranks.world, **measured}


def _spread(times_s: list[float], device: torch.device) -> float:
    """The standard deviation of a rank's step as a share of its mean: of all ranks' steps but their first."""
    own = torch.tensor(times_s[1:], dtype=torch.float64, device=device)
    sums = torch.stack([torch.ones_like(own).sum(), own.sum(), own.square().sum()])
    dist.all_reduce(sums)
    count, total, squares = map(float, sums.tolist())
    mean_s = total / count
    return math.sqrt(max(0.0, squares / count - mean_s * mean_s)) / mean_s


def _save(config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> Iterator[dict[str, object]]:
    """Time what all ranks wait for at a checkpoint: they compare their weights, and rank 0 copies the state."""
    learner, snapshot = Learner(config, ranks, device, parts), Snapshot()

    def save() -> None:
        learner.check_alike()
        if ranks.rank == 0:
            snapshot.take(learner.state())

    learner.step_alone()
    learner.start_alike()
    yield {"operation": events.SAVE, "time_s": slowest_s([timed_s(save, device) for _ in range(REPEATS)], device)}


def _links(ranks: Ranks, device: torch.device) -> Iterator[dict[str, object]]:
    """Time all-reduces of growing size, within nodes and then between them."""
    per_node = _per_node(ranks, device)
    nodes = ranks.world // per_node
    inside = [list(range(node * per_node, (node + 1) * per_node)) for node in range(nodes)]
    between = [list(range(local, ranks.world, per_node)) for local in range(per_node)]
    # A node's own link carries the messages of all its ranks.
    for link, groups, sharing in (("intra_node", inside, 1), ("inter_node", between, per_node)):
        if len(groups[0]) == 1:
            continue
        group = next(own for own, members in [(dist.new_group(m), m) for m in groups] if ranks.rank in members)
        for size in SIZES_BYTES:
            time_s = _all_reduce_s(size, group, device)
            row = {"link": link, "operation": "all_reduce", "ranks": len(groups[0]), "bytes": size * sharing}
            yield {**row, "time_s": time_s}
            if time_s > ENOUGH_S:
                break


def _all_reduce_s(size_bytes: int, group: dist.ProcessGroup, device: torch.device) -> float:
    vector = torch.ones(size_bytes // 4, device=device)
    return slowest_s([timed_s(lambda: dist.all_reduce(vector, group=group), device) for _ in range(REPEATS)], device)


def _per_node(ranks: Ranks, device: torch.device) -> int:
    here = torch.tensor([ranks.local + 1], device=device)
    dist.all_reduce(here, dist.ReduceOp.MAX)
    return int(here)


def all_reduces(config: Config, ranks: Ranks, device: torch.device) -> Iterator[dict[str, object]]:
    """Time the mean of growing vectors by both that `train.sync.all_reduce: auto` chooses between, over the grid."""
    if ranks.world == 1:
        return
    wire = config.train.sync.wire
    library, torus = all_reduce.build("flat", config.grid, wire), all_reduce.build("torus", config.grid, wire)
    over = {"grid": list(config.grid), "nodes": ranks.world // _per_node(ranks, device)}
    for size in REDUCED_BYTES:
        vector = torch.ones(size // DTYPES[wire].itemsize, device=device)
        library_s, torus_s = least_s((library, torus), vector, device)
        times = {"library_s": library_s, "torus_s": torus_s}
        yield {"operation": events.MEAN, **over, "library": dist.get_backend(), "wire": wire, "bytes": size, **times}
        if max(library_s, torus_s) > LONG_S:
            return


def least_s(
    several: Sequence[AllReduce], vector: torch.Tensor, device: torch.device, repeats: int = REPEATS
) -> list[float]:
    """The least time of each, measured in turns: a disturbance of the machine only adds to times, to all of them."""

    def measured(repeats: int) -> list[float]:
        times_s: list[list[float]] = [[] for _ in several]
        for _ in range(1 + repeats):
            for each, own_s in zip(several, times_s, strict=True):
                own_s.append(timed_s(partial(each.mean_, vector), device))
        return [slowest_s(own_s, device, min) for own_s in times_s]

    once_s = sum(measured(1))  # the same on all ranks
    return measured(max(repeats, min(MOST_REPEATS, int(WITHIN_S / once_s))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
