"""Accuracy over the batch size for SGD, SGD with a linear rate and a warm-up, and LARS: the best of a sweep of rates.

`python -m benchmarks.large_batch RESULTS.jsonl [--data mnist] [--size 14] [--epochs 5] [--batches 256,2048,8192]
                                  [--seeds 3] [--sides sgd,linear,lars] [--network small|resnet18]
                                  [--precision fp32] [--device cpu] [--threads 2] [--svg FILE] [--only-table]`

Each side is given with each of its rates, so that none loses by a rate that suits another: SGD with fixed rates, the
other two with multiples of their rule. One process computes the whole batch (batch norm sees all of it), so this is
about batches and not about ranks. A result is written when its run ends; the same command continues a file, whatever
ended it. The seeds come one after the other, each with all batches, sides and rates. The table has, of each side and
batch, the rate with the best mean over the seeds that have all rates, and its standard error. Only rates within the
sweep are a best one: '<' and '>' mark those at its ends.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from orchestrator.report.curve import Axis, Curve
from training.collectives import device as devices
from training.config import SCHEMA, Config
from training.learner import Learner
from training.meeting.ranks import Ranks
from training.parts import build_parts, settle
from training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, ScheduleKeys, Train

# resnet18: as trained on CIFAR-10 in kuangliu/pytorch-cifar, 11.2 million weights (from memory).
NETWORKS: dict[str, dict[str, Any]] = {
    "small": {},
    "resnet18": {"widths": (64, 128, 256, 512), "blocks": 2, "stem": 1},
}
CHECKED = 16  # steps between two looks for weights that are not finite, which wait for the device
WARM_UP = 0.2  # of all epochs
SIDES = ("sgd", "linear", "lars")
NAMES = {"sgd": "SGD", "linear": "linear SGD, warm-up", "lars": "LARS, warm-up"}
FIXED = (0.1, 0.4, 1.6)
TIMES = (1 / 3, 1.0, 3.0)


@dataclass(frozen=True)
class Case:
    """One training."""

    side: str
    batch: int
    rate: float
    seed: int
    data: str
    size: int
    epochs: int
    network: str = "small"
    precision: str = "fp32"

    def train(self) -> Train:
        lars = self.side == "lars"
        return Train(
            precision=self.precision,  # type: ignore[arg-type]
            epochs=self.epochs, batch=self.batch, seed=self.seed, log_every_steps=10**6,
            data=DataKeys(self.data, size=self.size), model=ModelKeys("resnet-small", NETWORKS[self.network]),
            optimizer=OptimizerKeys("lars" if lars else "sgd", lr=self.rate, weight_decay=2e-4 if lars else 1e-4),
            schedule=ScheduleKeys("cosine", warmup_epochs=0.0 if self.side == "sgd" else WARM_UP * self.epochs),
        )  # fmt: skip


def rates(side: str, batch: int) -> list[float]:
    """SGD's are the same for all batches. Linear SGD follows Goyal et al. 2017, LARS NVIDIA's 10 for 3,328."""
    if side == "sgd":
        return list(FIXED)
    rule = 0.1 * batch / 256 if side == "linear" else 10 * math.sqrt(batch / 3328)
    return [rule * times for times in TIMES]


def cases(chosen: argparse.Namespace, batches: Sequence[int], sides: Sequence[str]) -> Iterator[Case]:
    same = (chosen.data, chosen.size, chosen.epochs, chosen.network, chosen.precision)
    for seed in range(1, chosen.seeds + 1):
        for batch in batches:
            for side in sides:
                for rate in rates(side, batch):
                    yield Case(side, batch, rate, seed, *same)


def accuracy(case: Case, folder: Path, device: torch.device) -> float:
    """In percent of the test images; NaN if the training diverged."""
    names = ("rendezvous", "checkpoints", "memory", "metrics", "trace", "done")
    paths: dict[str, Any] = {name: folder / name for name in names}
    config = Config(
        schema=SCHEMA, run="large", attempt=1, grid=(1,), interface="lo", rendezvous_timeout_s=60.0, stretch=None,
        mean_time_to_failure_s=1e6, memory_until_s=0.0, token="0" * 64, train=case.train(), **paths,
    )  # fmt: skip
    parts = build_parts(config.train, device)
    settle(parts.optimizer, device)
    learner = Learner(config, Ranks(0, 1, 0), device, parts)
    while not learner.finished:
        learner.step(stop=False)
        if (learner.finished or learner.progress.steps % CHECKED == 0) and not all(
            torch.isfinite(each).all() for each in list(learner.model.parameters())[-2:]
        ):
            return math.nan
    return 100.0 * learner.evaluate().model.accuracy


def measure(results: Path, wanted: Sequence[Case], threads: int, device: torch.device) -> None:
    """Run what `results` does not have, and append each result."""
    if device.type == "cuda":
        devices.prepare("cuda", 0, wanted[0].precision)
    torch.set_num_threads(threads)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    there = {_key(row) for row in rows(results)}
    for number, case in enumerate(wanted, 1):
        if _key(asdict(case)) in there:
            continue
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group(
                devices.backend(device), store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1
            )
            began_s = time.perf_counter()
            found = accuracy(case, Path(folder), device)
            dist.destroy_process_group()
        row = {**asdict(case), "accuracy": None if math.isnan(found) else round(found, 3)}
        row |= {
            "spent_s": round(time.perf_counter() - began_s, 1),
            "day": str(date.today()),
            "torch": torch.__version__,
        }
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{number}/{len(wanted)} {row}", file=sys.stderr, flush=True)


def rows(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _key(row: dict[str, Any]) -> tuple[object, ...]:
    """What determines a run; older results do not name the network and the precision."""
    named = tuple(row[name] for name in ("side", "batch", "rate", "seed", "data", "size", "epochs"))
    return *named, row.get("network", "small"), row.get("precision", "fp32")


@dataclass(frozen=True)
class Best:
    """The best rate of a side at a batch: the mean accuracy, its standard error (0 for one seed), and the seeds."""

    rate: float
    mean: float
    error: float
    seeds: int
    end: str  # of the sweep: '<', '>', or ''


def best(found: Sequence[dict[str, Any]], side: str, batch: int) -> Best | None:
    """None until one seed has all rates. A training that diverged has the accuracy of a guess."""
    sweep = rates(side, batch)
    mine = {
        (row["rate"], row["seed"]): row["accuracy"] for row in found if (row["side"], row["batch"]) == (side, batch)
    }
    seeds = [seed for seed in sorted({seed for _, seed in mine}) if all((rate, seed) in mine for rate in sweep)]
    if not seeds:
        return None
    scores = {rate: [mine[rate, seed] or 10.0 for seed in seeds] for rate in sweep}
    rate = max(sweep, key=lambda each: statistics.fmean(scores[each]))
    error = statistics.stdev(scores[rate]) / math.sqrt(len(seeds)) if len(seeds) > 1 else 0.0
    end = {sweep[0]: "<", sweep[-1]: ">"}.get(rate, "")
    return Best(rate, statistics.fmean(scores[rate]), error, len(seeds), end)


def table(found: Sequence[dict[str, Any]], batches: Sequence[int]) -> Iterator[str]:
    yield f"| samples a step | {' | '.join(NAMES[side] for side in SIDES)} |"
    yield "|---|---|---|---|"
    for batch in batches:
        cells = []
        for side in SIDES:
            each = best(found, side, batch)
            error = f" +- {each.error:.2f}" if each and each.seeds > 1 else ""
            cells.append(f"{each.mean:.2f}{error} (rate {each.rate:.3g}{each.end}, n={each.seeds})" if each else "")
        yield f"| {batch:,} | {' | '.join(cells)} |"


def figure(found: Sequence[dict[str, Any]], batches: Sequence[int]) -> Curve:
    curves: dict[str, list[tuple[float, float]]] = {}
    for side in SIDES:
        points = [(float(batch), each.mean) for batch in batches if (each := best(found, side, batch))]
        curves |= {NAMES[side]: points} if points else {}
    return Curve(curves, Axis("{:,.0f}".format, log=True), Axis("{:.1f} %".format))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_batch")
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batches", default="256,2048,8192")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--network", choices=NETWORKS, default="small")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    chosen = parser.parse_args(arguments)
    batches = [int(batch) for batch in chosen.batches.split(",")]
    wanted = list(cases(chosen, batches, chosen.sides.split(",")))
    if not chosen.only_table:
        measure(chosen.results, wanted, chosen.threads, torch.device(chosen.device))
    keys = {_key(asdict(case)) for case in wanted}
    found = [row for row in rows(chosen.results) if _key(row) in keys]
    print(f"{date.today()}  torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores; {chosen.data}, "
          f"{chosen.size} x {chosen.size}, {chosen.epochs} epochs; {len(found)} of {len(wanted)} runs")  # fmt: skip
    print("\n".join(table(found, batches)))
    if chosen.svg and (curve := figure(found, batches)).curves:
        chosen.svg.write_text(curve.as_svg(720, 320))


if __name__ == "__main__":
    main()
