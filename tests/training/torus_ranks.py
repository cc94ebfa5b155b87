"""Real gloo processes that reduce what they are told to, kept alive from one example to the next.

They are forked from a server that has torch loaded already, so eight of them start in a moment.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.sync.all_reduce import AllReduce, build

ANSWER_S = 60.0


class RankPool:
    """`world` processes in one group; `ask` runs a task of this module on all of them."""

    def __init__(self, world: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch.distributed"])
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world):
            here, there = context.Pipe()
            arguments = (rank, world, str(Path(self._folder.name) / "store"), there)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def ask(self, task: str | Callable[..., Any], *arguments: Any) -> list[Any]:
        """The answers by rank."""
        for pipe in self._pipes:
            pipe.send((task, arguments))
        return [self._answer(rank, pipe) for rank, pipe in enumerate(self._pipes)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    def _answer(self, rank: int, pipe: Connection) -> Any:
        assert pipe.poll(ANSWER_S), f"rank {rank} hangs in a collective"
        return pipe.recv()


def serve(rank: int, world: int, store: str, pipe: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    while True:
        task, arguments = pipe.recv()
        run = task if callable(task) else TASKS[task]
        pipe.send(run(rank, *arguments))


@cache
def torus_of(x_ranks: int, y_ranks: int) -> AllReduce:
    return build("torus", (x_ranks, y_ranks))


def reduce(rank: int, x_ranks: int, y_ranks: int, elements: int, seed: int) -> dict[str, Any]:
    """Reduce random numbers both ways: difference from a flat all-reduce, bits, bytes sent."""
    torus = torus_of(x_ranks, y_ranks)
    row_bytes, column_bytes = torus.wire_bytes
    generator = torch.Generator().manual_seed(seed * 100 + rank)
    mine = torch.randn(elements, generator=generator)
    flat = mine.clone()
    dist.all_reduce(flat)
    flat /= torus.ranks
    torus.mean_(mine)
    return {
        "difference": (mine - flat).abs().max().item(),
        "bits": bytes(mine.view(torch.uint8).tolist()),
        "row_bytes": torus.wire_bytes[0] - row_bytes,
        "column_bytes": torus.wire_bytes[1] - column_bytes,
    }


TASKS = {"reduce": reduce}
