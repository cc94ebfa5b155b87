"""The ten recipes on the digits, with many seeds: at a small and at a large batch, and with each technique left out.

`python -m benchmarks.recipes [--epochs E] [--seeds 5] [--batch 360] [--only large,small,ablations]
                              [--leave-out warm-up,LARS] [NAME ...]`

Four ranks are four processes, which stay for all trainings. The largest batch of a recipe is 360, a quarter of the
training set, or that of `--batch`, and 64 at the small batch. The reference is plain SGD at the small batch (rate 0.1,
warm-up of one epoch, cosine, label smoothing 0.1) for 30 epochs, or E. The keys of a recipe are those that `torusrun
submit` would give the ranks: its own epochs unless E is given, all others by the rules of training/recipe/published.py.
The rate of a recipe without LARS is meant for ImageNet (0.1 for 256 samples): it gets the `optimizer.lr` of the
reference in proportion to the batch. The goal is at most half a point below the same recipe at the small batch if that
is run, else below the reference. A difference is shown if it is more than twice its standard error.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.recipe_ablations import TECHNIQUES, ablations
from torusrun.training.config import SCHEMA, Config, Ranks
from torusrun.training.learner import Learner
from torusrun.training.parts import build_parts, settle
from torusrun.training.recipe import published
from torusrun.training.recipe.train import OptimizerKeys, Train

RANKS = 4
GRID = (2, 2)
CPU = torch.device("cpu")
SMALL, QUARTER = 64, 360
RATE = 0.1  # of the reference
GOAL = 0.5  # points below the reference


@dataclass
class Case:
    """One training, to be run with several seeds; accuracies in percent."""

    recipe: str
    what: str
    train: Train
    beside: str = ""  # the name of the same recipe's case to compare with; else the reference
    accuracies: list[float] = field(default_factory=list)
    members: list[list[float]] = field(default_factory=list)  # of the ensemble, the last is its own
    spent_s: float = 0.0

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0


def cases(
    names: Iterable[str], epochs: int | None, parts: Sequence[str], batch: int, left_out: Sequence[str]
) -> list[Case]:
    """The cases to run; `left_out` are the techniques of the ablations, all if it is empty."""
    plain = Train(
        device="cpu", epochs=epochs or 30, batch=SMALL, optimizer=OptimizerKeys(lr=RATE), log_every_steps=10**6
    )
    found = [Case("reference", f"SGD, batch {SMALL}", plain)]
    for name in names:
        if "small" in parts:
            found.append(Case(name, f"batch {SMALL}", _resolved(name, epochs, SMALL)))
        whole = Case(name, f"batch {batch}", _resolved(name, epochs, batch), f"batch {SMALL}")
        if "large" in parts or "ablations" in parts:
            found.append(whole)
        if "ablations" in parts:
            without = (each for each in ablations(whole.train) if not left_out or each[0] in left_out)
            found += [Case(name, f"without {what}", train, whole.what) for what, train in without]
    return found


def _resolved(name: str, epochs: int | None, batch: int) -> Train:
    wanted = Train(
        recipe=cast(Any, name), device="cpu", epochs=epochs or 1, batch=_first_batch(name, batch), log_every_steps=10**6
    )
    given = {"recipe", "device", "batch", "log_every_steps", *(["epochs"] if epochs else [])}
    if published.load(name).train.optimizer.name != "lars":
        wanted = replace(wanted, optimizer=OptimizerKeys(lr=RATE * batch / SMALL))
        given.add("optimizer.lr")
    return published.resolve(wanted, frozenset(given), RANKS, gpus=False).train


def _first_batch(name: str, largest: int) -> int:
    """The first phase's batch, if `largest` is the recipe's largest batch."""
    train = published.load(name).train
    batches = [phase.batch for phase in train.phases if phase.batch]
    return round(largest * train.batch / max(batches, default=train.batch) / RANKS) * RANKS


def run_all(rank: int, found: Sequence[Case], seeds: int, folder: str, results: mp.SimpleQueue) -> None:
    """One rank's part of all trainings; rank 0 sends the results: (number of the case, seed, accuracies, s)."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for number, case in enumerate(found):
        for seed in range(1, seeds + 1):
            store = dist.FileStore(f"{folder}/{number}-{seed}", RANKS)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
            started_s = time.perf_counter()
            measured = train_once(replace(case.train, seed=seed), rank, Path(folder))
            if rank == 0:
                results.put((number, seed, measured, time.perf_counter() - started_s))
            dist.destroy_process_group()
            gc.collect()  # frees the process groups of the training


def train_once(train: Train, rank: int, folder: Path) -> list[float]:
    """The accuracy of the model, then of each member of its ensemble and of the ensemble, in percent."""
    paths: dict[str, Any] = {
        name: folder / name for name in ("rendezvous", "checkpoints", "memory", "metrics", "trace", "done")
    }
    config = Config(
        schema=SCHEMA, run="recipes", attempt=1, grid=GRID, by_size=(), interface="lo",
        rendezvous_timeout_s=60.0, mean_time_to_failure_s=1e6, memory_until_s=0.0,
        token="0" * 64, train=train, **paths,
    )  # fmt: skip
    parts = build_parts(train, CPU)
    settle(parts.optimizer, CPU)
    learner = Learner(config, Ranks(rank, RANKS, rank), CPU, parts)
    learner.start_alike()
    while not learner.finished:
        learner.step(stop=False)
    found = learner.evaluate()
    several = [*found.members, found.ensemble] if found.ensemble else []
    return [100.0 * score.accuracy for score in (found.model, *several)]


TITLES = f"{'recipe':15} {'what':38} {'accuracy':>8} {'spread':>6} {'difference':>10}  shown"


def line(case: Case, found: Sequence[Case]) -> str:
    """Mean, spread, and distance from the reference or the whole recipe, which are in `found` with all their seeds."""
    reference = found[0]
    text = f"{case.recipe:15} {case.what:38} {case.mean:8.2f} {case.spread:6.2f}"
    if case is reference:
        return text
    same = [other for other in found if (other.recipe, other.what) == (case.recipe, case.beside)]
    other = same[0] if same else reference
    difference = case.mean - other.mean
    error = math.hypot(case.spread, other.spread) / math.sqrt(len(case.accuracies))
    if case.what.startswith("without"):
        shown = "yes" if abs(difference) > 2 * error else "no"
    else:
        shown = "within the goal" if difference >= -GOAL else "BELOW THE GOAL"
    return f"{text} {difference:+10.2f}  {shown}"


def _ensembles(found: Sequence[Case]) -> Iterable[str]:
    for case in found:
        if not case.members or case.what.startswith("without"):
            continue
        yield f"{case.recipe}, {case.what}: members by seed, then their ensemble, and what it has over the best member"
        gains = []
        for scores in case.members:
            *members, ensemble = scores
            gains.append(ensemble - max(members))
            yield "  " + " ".join(f"{score:6.2f}" for score in members) + f"  | {ensemble:6.2f} {gains[-1]:+6.2f}"
        yield f"  mean {statistics.fmean(gains):+.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=QUARTER)
    parser.add_argument("--only", default="large,small,ablations")
    parser.add_argument("--leave-out", default="")
    chosen = parser.parse_args()
    left_out = [each for each in chosen.leave_out.split(",") if each]
    if unknown := [each for each in left_out if each not in TECHNIQUES]:
        parser.error(f"--leave-out {unknown[0]}: it is none of {', '.join(TECHNIQUES)}")
    names = chosen.names or published.names()
    found = cases(names, chosen.epochs, chosen.only.split(","), chosen.batch, left_out)
    started_s = time.perf_counter()
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"{date.today()}  torch {torch.__version__}, {machine}; digits, {RANKS} ranks as processes,")
    epochs = f"{chosen.epochs} epochs" if chosen.epochs else "each recipe's own epochs"
    print(f"{epochs}, {chosen.seeds} seeds; percent of 360 test images, of which one is 0.28")
    print(TITLES, flush=True)
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = mp.spawn(run_all, (found, chosen.seeds, folder, results), nprocs=RANKS, join=False)
        for _ in range(len(found) * chosen.seeds):
            while results.empty():
                if ranks.join(timeout=0.2):
                    break
            number, _seed, measured, spent_s = results.get()
            found[number].accuracies.append(measured[0])
            found[number].spent_s += spent_s
            print(f"  {found[number].recipe} {found[number].what} {measured}", file=sys.stderr, flush=True)
            if len(measured) > 1:
                found[number].members.append(measured[1:])
            if len(found[number].accuracies) == chosen.seeds:
                print(line(found[number], found), flush=True)
        while not ranks.join():
            pass
    for told_of in _ensembles(found):
        print(told_of)
    print(f"{time.perf_counter() - started_s:.0f} s, {sum(case.spent_s for case in found):.0f} s of them training")


if __name__ == "__main__":
    main()
