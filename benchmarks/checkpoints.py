"""What a checkpoint costs a training: ours, written by a process, beside other ways to write the same state.

`python -m benchmarks.checkpoints [--rounds 9]`, on a machine with a disk below --folder; a few minutes

Steps of one rank on the CPU in blocks of equal length. A block begins with a save in one of the ways, or without one,
and ends when the checkpoint is complete on the disk. Ways take turns. `extra` is the median time of a block over that
of the block without a save in the same round; `waits` is the time until the training continues, in which each way first
compares the weights of all ranks, as a training does. The limit is one copy of the state in memory: less cannot keep it
for a writer while the training changes it. `own CPU` is the CPU time of the training's process for a save alone, with
its threads, `beside` that of the process that writes, in steps of 10 ms.

The shares are those of `extra` at Daly's interval, by Meta's rate of failures (arXiv 2410.21680) for as many GPUs.
Here the writer takes a core that the training would use. On a GPU node it has cores of its own, and the copy takes the
device's copy engine; that has not been measured.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.step import learner
from torusrun.orchestrator.forecast.checkpoints import mean_time_to_failure_s
from torusrun.training.checkpoint import writer
from torusrun.training.checkpoint.interval import daly_s
from torusrun.training.checkpoint.manifest import compose
from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.files.trusted import put, sync_folder
from torusrun.training.learner import Learner
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train

CASES = {
    "ResNet-50": (Train(model=ModelKeys("resnet50"), data=DataKeys("synthetic", size=64), batch=8), 6),
    "digits": (Train(batch=64), 50),
}
GPUS = (1, 16, 1024)


class Way(ABC):
    """A way to save the state of a learner in a folder. `beside` is the process that helps, if there is one."""

    beside: int | None = None

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        folder.mkdir()

    @abstractmethod
    def save(self, learning: Learner) -> None:
        """Save; returns when the training may continue."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until the checkpoint is complete."""


class Synchronous(Way):
    """All in the training's own thread, as torusrun did before: torch.save, SHA-256, fsync, manifest, rename."""

    def save(self, learning: Learner) -> None:
        write(self.folder / f"step-{self.number:08d}", learning.state(), learning)
        self.number += 1

    def finish(self) -> None:
        """It is."""


class Thread(Way):
    """A copy, then the same in a thread."""

    def save(self, learning: Learner) -> None:
        state = copied(learning.state())
        path = self.folder / f"step-{self.number:08d}"
        self._thread = threading.Thread(target=write, args=(path, state, learning))
        self._thread.start()
        self.number += 1

    def finish(self) -> None:
        self._thread.join()


class Torchs(Way):
    """torch.distributed.checkpoint.async_save, which copies and writes in a thread; no checksum."""

    def save(self, learning: Learner) -> None:
        from torch.distributed.checkpoint.state_dict_saver import async_save

        self._future = async_save(learning.state(), checkpoint_id=self.folder / str(self.number))
        self.number += 1

    def finish(self) -> None:
        self._future.result()  # type: ignore[union-attr]


class Ours(Way):
    """A copy in shared memory, and a process that writes it."""

    made: writer.Writer

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._checkpoints, self._snapshot = CheckpointFolder(folder, attempt=1), Snapshot()

    def save(self, learning: Learner) -> None:
        files = {"state.pt": self._snapshot.take(learning.state())}
        order = replace(self._checkpoints.order(learning.progress, learning.epochs), files=files)
        self.made.begin(order, self._snapshot.descriptor)

    def finish(self) -> None:
        done = self.made.finished(wait=True)
        assert done and not done.error, done
        self._checkpoints.written(done.order, done.files)


WAYS: dict[str, Callable[[Path], Way]] = {
    "synchronous": Synchronous,
    "thread": Thread,
    "torch's async_save": Torchs,
    "ours": Ours,
}


def write(path: Path, state: dict[str, Any], learning: Learner) -> None:
    path.mkdir()
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    put(path / "state.pt", content)
    put(path / "manifest.json", str(compose(learning.progress, 0.0, 1, {"state.pt": content})).encode())
    sync_folder(path.parent)


def copied(state: Any) -> Any:
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    return {name: copied(value) for name, value in state.items()} if isinstance(state, dict) else state


def block(learning: Learner, steps: int, way: Way | None) -> tuple[float, float]:
    """(seconds of a block, seconds until the training continued after its save)."""
    os.sync()
    began_s = time.perf_counter()
    if way:
        learning.check_alike()
        way.save(learning)
    waited_s = time.perf_counter() - began_s
    for _ in range(steps):
        learning.step(stop=False)
    if way:
        way.finish()
    return time.perf_counter() - began_s, waited_s


def copy_s(state: dict[str, Any]) -> tuple[float, int]:
    """(the least seconds of one copy of all tensors between two places in memory, their bytes)."""
    tensors = [value for part in ("model", "optimizer") for value in state[part].values() if torch.is_tensor(value)]
    targets = [torch.zeros_like(tensor) for tensor in tensors]
    times_s = []
    for _ in range(7):
        began_s = time.perf_counter()
        for target, tensor in zip(targets, tensors, strict=True):
            target.copy_(tensor)
        times_s.append(time.perf_counter() - began_s)
    return min(times_s), sum(tensor.nbytes for tensor in tensors)


def cpu_s(learning: Learner, way: Way) -> tuple[float, float]:
    """The median CPU seconds of a save without steps: (of the training's process, of the process beside it)."""
    found = []
    for _ in range(5):
        began_s, beside_s = time.process_time(), of_process_s(way.beside)
        way.save(learning)
        way.finish()
        found.append((time.process_time() - began_s, of_process_s(way.beside) - beside_s))
    own, beside = zip(*found, strict=True)
    return statistics.median(own), statistics.median(beside)


def of_process_s(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() if pid else []
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, folder: Path, rounds: int) -> None:
    train, steps = CASES[name]
    train = Train(**{**train.__dict__, "optimizer": OptimizerKeys(lr=0.001), "epochs": 1_000_000, "device": "cpu"})
    made, _ = learner(train, torch.device("cpu"), folder)
    ways = {way: kind(folder / f"{name} {way}") for way, kind in WAYS.items()}
    for each in (None, *ways.values()):
        block(made, 2, each)
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    plain_s = []
    for number in range(rounds):
        none_s, _ = block(made, steps, None)
        plain_s.append(none_s / steps)
        order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
        for way in order:
            took_s, waited_s = block(made, steps, ways[way])
            found[way].append((took_s - none_s, waited_s, took_s / none_s))
    least_s, state_bytes = copy_s(made.state())
    step_s = statistics.median(plain_s)
    print(f"\n{name}: {state_bytes / 1e6:.1f} MB, a save every {steps} steps of {step_s * 1e3:.1f} ms")
    shares = "".join(f"{f'{gpus} GPUs':>12}" for gpus in GPUS)
    columns = f"{'extra ms':>10}{'waits ms':>10}{'waits / copy':>14}{'own CPU ms':>12}{'beside':>8}"
    print(f"{'way':20}{'block / none':>13}{columns}{shares}")
    for way, rows in found.items():
        extra_s, waits_s, ratio = (statistics.median(column) for column in zip(*rows, strict=True))
        lasts = [
            max(extra_s, waits_s) / daly_s(max(extra_s, waits_s), mean_time_to_failure_s(None, 1, n)) for n in GPUS
        ]
        share = "".join(f"{last:12.4%}" for last in lasts)
        own_s, beside_s = cpu_s(made, ways[way])
        waits = f"{waits_s * 1e3:10.1f}{waits_s / least_s:14.1f}{own_s * 1e3:12.1f}{beside_s * 1e3:8.0f}"
        print(f"{way:20}{ratio:13.3f}{extra_s * 1e3:10.1f}{waits}{share}", flush=True)
    print(f"{'limit: one copy':20}{'':13}{least_s * 1e3:10.1f}{least_s * 1e3:10.1f}{1:14.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="on the disk to write to; default: the temporary folder")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    asked = parser.parse_args()
    Ours.made = started
    [Ours.beside] = map(int, Path("/proc/thread-self/children").read_text().split())
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    print(f"{os.cpu_count()} cores, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}, {time.strftime('%F')}")
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for name in asked.cases:
            measure(name, Path(folder), asked.rounds)
    dist.destroy_process_group()


if __name__ == "__main__":
    started = writer.start()
    main()
