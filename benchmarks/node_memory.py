"""What a copy of the state in the memory of the node costs a step on a CPU, beside a plain copy of as many bytes.

`python -m benchmarks.node_memory [--rounds 15]`, with room in /dev/shm; a minute

The median of the rounds, and the fastest, which says more on a busy machine. The first copies, which also get the
memory, do not count. `CPU ms` is the CPU time of a copy, and of a step. On a GPU node the device copies beside the next
step; that has not been measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.checkpoints import CASES
from benchmarks.step import learner
from torusrun.training.checkpoint import node_memory
from torusrun.training.checkpoint.node_state import Copies
from torusrun.training.checkpoint.snapshot import tensors_of
from torusrun.training.learner import Learner

STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'state':12} {'MB':>7} {'copy ms':>16} {'plain copy ms':>16} {'CPU ms':>15}")
    for name, (train, _) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            trained, _ = learner(train, torch.device("cpu"), Path(folder))
            trained.step(stop=False)
            step_s = min(seconds(partial(trained.step, False), time.process_time) for _ in range(STEPS))
            print(f"{name:12} {row(trained, rounds, step_s)}", flush=True)


def row(trained: Learner, rounds: int, step_s: float) -> str:
    size_bytes = sum(tensor.nbytes for tensor in tensors_of(trained.state()))
    one, other = (torch.ones(size_bytes // 4) for _ in range(2))
    with tempfile.TemporaryDirectory(dir=node_memory.SHARED) as folder:
        copies = Copies(Path(folder), run="0" * 64, attempt=1)
        copied_s = [seconds(lambda: copies.put(trained.state(), 1)) for _ in range(rounds + 2)][2:]
        cpu_s = min(seconds(lambda: copies.put(trained.state(), 1), time.process_time) for _ in range(rounds))
    plain_s = [seconds(lambda: other.copy_(one)) for _ in range(rounds)]
    return f"{size_bytes / 1e6:7.1f} {words(copied_s)} {words(plain_s)} {1e3 * cpu_s:6.2f} {1e3 * step_s:8.2f}"


def words(times_s: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(times_s):8.2f} {1e3 * min(times_s):7.2f}"


def seconds(act: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started_s = clock()
    act()
    return clock() - started_s


if __name__ == "__main__":
    main()
