"""Communication that a step does not hide, by plan of buckets: ranks that train ResNet-50 in bf16, over NCCL.

`python -m benchmarks.gpu.overlap [--ranks 2] [--batch 64] [--steps 20]`. A step of all ranks, less their step without
the all-reduce, is exposed; both train on one batch, which stays on the device. The all-reduce of all gradients by
itself is what there is to hide. If there are fewer cards than ranks, ranks share a card, and their data pass through
sockets (see one_card.py): then compare plans, and do not take a time for that of ranks with cards of their own.
`--device cpu --small` shows on a CPU that it runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gpu import card
from benchmarks.gpu.one_card import together
from benchmarks.step import Timed, learner
from torusrun.training.collectives import device as devices
from torusrun.training.collectives.all_reduce import build
from torusrun.training.config import Ranks
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, SyncKeys, Train
from torusrun.training.sync.planner import PROFILED_STEPS

LIMIT_S = 540.0  # for all plans


class Kept(Timed):
    """A data set with one batch, on the device: so that no step has a part of the input in its time."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self._batch: Any = None

    def train_batch(self, samples: list[tuple[int, int]]) -> Any:
        if self._batch is None:
            device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_initialized() else None
            self._batch = tuple(each.to(device) for each in super().train_batch(samples))
        return self._batch

    prefetch = None  # nothing is read ahead


PLANS = {
    "one bucket": SyncKeys(buckets="one"),
    "torch's sizes": SyncKeys(buckets="ddp"),
    "exact": SyncKeys(buckets="exact"),
    "torch's DDP": SyncKeys(all_reduce="ddp"),
}
SMALL = ("exact", "torch's DDP")


def shown(small: bool) -> dict[str, SyncKeys]:
    return {name: plan for name, plan in PLANS.items() if not small or name in SMALL}


def trainings(rank: int, device: torch.device, world: int, batch: int, steps: int, small: bool) -> list[list[float]]:
    """[step, step without the all-reduce, all-reduce alone] of each plan, in ms; the same on all ranks."""
    found = []
    for sync in shown(small).values():
        train = Train(
            model=ModelKeys("resnet-small" if small else "resnet50", {"channels_last": True}),
            data=DataKeys("synthetic", size=32 if small else 224), optimizer=OptimizerKeys("sgd"),
            epochs=1_000_000, batch=batch * world, precision="fp32" if small else "bf16", sync=sync,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            made, _ = learner(train, device, Path(folder), Ranks(rank, world, rank), Kept)
            for _ in range(PROFILED_STEPS + 3):
                made.step(stop=False)
            whole = slowest_ms(lambda made=made: made.step(stop=False), steps, device)  # type: ignore[misc]
            alone = slowest_ms(made.step_alone, steps, device)
        vector = torch.zeros(made.parameters // world * world, device=device)
        all_reduce = build("torus", (world,))
        reduce = slowest_ms(lambda vector=vector, by=all_reduce: by.mean_(vector), steps, device)  # type: ignore[misc]
        found.append([whole, alone, reduce])
    return found


def slowest_ms(act: Callable[[], object], rounds: int, device: torch.device) -> float:
    """The median time of an act until the device of the slowest rank is done; the first one is left out."""
    times_s = []
    for _ in range(rounds + 1):
        devices.wait(device)
        dist.barrier(device_ids=[device.index] if device.type == "cuda" else None)
        devices.wait(device)
        started_s = time.perf_counter()
        act()
        devices.wait(device)
        times_s.append(time.perf_counter() - started_s)
    slowest = torch.tensor(times_s[1:], device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return 1e3 * statistics.median(slowest.tolist())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.overlap")
    parser.add_argument("--ranks", type=int, default=max(2, torch.cuda.device_count()))
    parser.add_argument("--batch", type=int, default=64, help="of a rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--small", action="store_true", help="a small network at 32 x 32, in fp32")
    chosen = parser.parse_args(arguments)
    asked = (chosen.ranks, chosen.batch, chosen.steps, chosen.small)
    rows, *_ = together(chosen.ranks, chosen.device, trainings, *asked, limit_s=LIMIT_S)
    cards = torch.cuda.device_count()
    place = f"{cards} cards" if chosen.device == "cuda" else "a CPU"
    print(f"{card.facts(torch.device(chosen.device))}\n{chosen.ranks} ranks on {place}, {chosen.batch} images each\n")
    print(f"{'':16}{'step ms':>10}{'without all-reduce':>20}{'exposed':>10}{'all-reduce alone':>18}{'hidden':>9}")
    for name, (whole, alone, reduce) in zip(shown(chosen.small), rows, strict=True):
        exposed = max(0.0, whole - alone)
        hidden = max(0.0, 1 - exposed / reduce)
        print(f"{name:16}{whole:10.2f}{alone:20.2f}{exposed:10.2f}{reduce:18.2f}{hidden:9.0%}")


if __name__ == "__main__":
    main()
