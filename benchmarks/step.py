"""Images per second of one rank by local batch, and where the time goes: the steps of a training, its data included.

`python -m benchmarks.step` takes ResNet-50 in channels_last and bf16 with LARS, on random images of 224 x 224
(`data: synthetic`); `--data imagefolder --set root=FOLDER` reads images. Without a GPU something small shows that it
runs: `python -m benchmarks.step --model resnet18 --size 32 --batches 4 --steps 2 --precision fp32`.

Waiting for data is the share of the time that the rank waits for images; not computing, on a GPU, the share in which no
kernel runs. Anchors: the goals of this project, and an H100's 6,980 in NVIDIA's MLPerf 3.0 run, evaluation included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import DeviceType

from torusrun.training.collectives import device as devices
from torusrun.training.config import SCHEMA, Config, Ranks
from torusrun.training.learner import Learner
from torusrun.training.parts import build_parts, settle
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train

GOALS = (3600, 5000)
PROFILED, LONGEST = 10, 6  # steps, and kernels that are shown
ALONE = Ranks(0, 1, 0)
HEAD = f"{'batch':>6}{'images/s':>10}{'ms':>10}{'waiting for data':>18}{'not computing':>15}"

Act = Callable[[], object]


class Timed:
    """A data set, and the seconds of waiting for its batches."""

    def __init__(self, data: Any) -> None:
        self._data, self.waited_s = data, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def train_batch(self, samples: list[tuple[int, int]]) -> Any:
        started_s = time.perf_counter()
        batch = self._data.train_batch(samples)
        self.waited_s += time.perf_counter() - started_s
        return batch


def learner(
    train: Train, device: torch.device, folder: Path, ranks: Ranks = ALONE, wrap: Callable[[Any], Timed] = Timed
) -> tuple[Learner, Timed]:
    """The learner of a rank, of a single one if none is given, as in a run; compiled only if the keys say so."""
    train = replace(train, compile=bool(train.compile))
    parts = build_parts(train, device)
    settle(parts.optimizer, device)
    data = wrap(parts.data)
    config = Config(
        schema=SCHEMA, run="step", attempt=1, grid=(ranks.world,), by_size=(), interface=None,
        rendezvous=folder / "rendezvous", rendezvous_timeout_s=60.0, token="0" * 64,
        checkpoints=folder / "checkpoints", metrics=folder / "metrics.jsonl", memory=folder / "memory",
        memory_until_s=0.0, done=folder / "done", trace=folder / "trace.jsonl",
        mean_time_to_failure_s=1e6, train=train,
    )  # fmt: skip
    return Learner(config, ranks, device, replace(parts, data=data)), data


def seconds(step: Act, steps: int, wait: Act) -> float:
    """The seconds of `steps` steps."""
    wait()
    started_s = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return time.perf_counter() - started_s


def kernels_s(step: Act) -> dict[str, float]:
    """Seconds of a step in each kernel, the longest first; copies from the host take place beside, and do not count."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.device_type == DeviceType.CUDA and not row.is_user_annotation]
    kernels = [row for row in rows if not row.key.startswith("Memcpy HtoD")]
    found = {row.key: row.self_device_time_total / 1e6 / PROFILED for row in kernels}
    return dict(sorted(found.items(), key=lambda each: -each[1]))


def row(train: Train, device: torch.device, steps: int, wrap: Callable[[Any], Timed] = Timed) -> str:
    """The measurements at one batch, after the steps that choose kernels."""
    with tempfile.TemporaryDirectory() as folder:
        made, data = learner(train, device, Path(folder), wrap=wrap)
        return row_of(lambda: made.step(stop=False), train.batch, device, steps, data)


def row_of(step: Act, batch: int, device: torch.device, steps: int, data: Timed) -> str:
    """The measurements of a step, and the longest kernels; `data` counts its waits for images."""
    gpu = device.type == "cuda"
    wait = torch.cuda.synchronize if gpu else lambda: None
    seconds(step, max(1, steps // 3), wait)
    data.waited_s = 0.0
    took_s = seconds(step, steps, wait)
    waiting = data.waited_s / took_s
    kernels = kernels_s(step) if gpu else {}
    idle = f"{max(0.0, 1 - sum(kernels.values()) * steps / took_s):15.1%}" if gpu else f"{'-':>15}"
    rate = steps * batch / took_s
    shares = "".join(f"{rate / goal:8.2f}" for goal in GOALS)
    longest = "".join(f"\n{1e3 * took:10.2f} ms {name[:100]}" for name, took in [*kernels.items()][:LONGEST])
    return f"{batch:6}{rate:10.1f}{took_s / steps * 1e3:10.2f}{waiting:18.1%}{idle}{shares}{longest}"


def option(given: str) -> tuple[str, str | int | float | bool]:
    """An option NAME=VALUE; a value that looks like a number, true or false becomes one."""
    name, _, text = given.partition("=")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option of the data set")
    parser.add_argument("--size", type=int, default=224, help="pixels")
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 32, 64, 128, 256])
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="bf16")
    parser.add_argument("--steps", type=int, default=30)
    return parser.parse_args()


def main() -> None:
    args = asked()
    train = Train(
        model=ModelKeys(args.model, {"channels_last": True}),
        data=DataKeys(args.data, dict(map(option, args.set)), size=args.size),
        optimizer=OptimizerKeys("lars"),
        epochs=1_000_000,
        precision=args.precision,
    )
    device = devices.prepare("auto", 0)
    dist.init_process_group(devices.backend(device), store=dist.HashStore(), rank=0, world_size=1)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {time.strftime('%F')}")
    print(
        f"{args.model}, {args.data}, {args.size} x {args.size}, channels_last, {args.precision}, {args.steps} steps\n"
    )
    goals = "".join(f"{f'/ {goal}':>8}" for goal in GOALS)
    print(f"{HEAD}{goals}")
    for batch in args.batches:
        print(row(replace(train, batch=batch), device, args.steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
