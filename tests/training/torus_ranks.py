"""Real gloo processes that do what they are told to, kept alive from one example to the next.

They are forked from a server that has the training loaded already, so eight of them start in a moment.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ANSWER_S = 600.0  # on a busy machine
KEPT_RANKS = 6
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch.distributed", "torusrun.training.loop", "pytest"])
# Each algorithm that a rank builds adds groups to its process, and gloo polls each of them in a thread of its own 100
# times a second: the groups of a whole module would keep a machine busy.
MOST_ASKED = 12


class RankPool:
    """`world` processes in one group; `ask` calls a function on all of them."""

    def __init__(self, world: int, timeout_s: float = ANSWER_S) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(world):
            here, there = FORKS.Pipe()
            arguments = (rank, world, str(Path(self._folder.name) / "store"), timeout_s, there)
            process = FORKS.Process(target=serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def ask(self, task: Callable[..., Any], *arguments: Any, lost: int = 0) -> list[Any]:
        """What `task` answers on each rank, without the last ones that it is to lose."""
        for pipe in self._pipes:
            pipe.send((task, arguments))
        here = self._pipes[: len(self._pipes) - lost]
        return [self._answer(rank, pipe) for rank, pipe in enumerate(here)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    def _answer(self, rank: int, pipe: Connection) -> Any:
        assert pipe.poll(ANSWER_S), f"rank {rank} hangs in a collective"
        return pipe.recv()


class Pools:
    """Pools by their number of ranks. A large one ends when another is needed, any of them after MOST_ASKED tests."""

    def __init__(self) -> None:
        self._pools: dict[int, RankPool] = {}
        self._asked: Counter[int] = Counter()

    def of(self, world: int) -> RankPool:
        self._asked[world] += 1
        if world in self._pools and self._asked[world] > MOST_ASKED:
            self._close(world)
        if world not in self._pools:
            for large in [other for other in self._pools if other > KEPT_RANKS]:
                self._close(large)
            self._pools[world], self._asked[world] = RankPool(world), 1
        return self._pools[world]

    def close(self) -> None:
        for world in list(self._pools):
            self._close(world)

    def _close(self, world: int) -> None:
        self._pools.pop(world).close()


def serve(rank: int, world: int, store: str, timeout_s: float, pipe: Connection) -> None:
    torch.set_num_threads(1)
    timeout, file = timedelta(seconds=timeout_s), dist.FileStore(store, world)
    dist.init_process_group("gloo", store=file, rank=rank, world_size=world, timeout=timeout)
    while True:
        task, arguments = pipe.recv()
        pipe.send(task(rank, *arguments))
