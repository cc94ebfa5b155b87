"""Several ranks on the cards of this machine, more ranks than cards if need be, or on its CPU.

NCCL refuses two ranks with one card, unless they are on different hosts. NCCL_HOSTID names a rank's host, so each rank
gets a host of its own, and they exchange data through sockets on the loopback interface (tried with NCCL 2.28.9). Such
ranks share the card by time slices, so their times are not those of ranks with cards of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from torusrun.training.collectives import device as devices

LIMIT_S = 180.0
EXIT_S = 5.0  # until a process whose pipe is closed has ended
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch.distributed", "torusrun.training.learner"])


def environment(rank: int) -> dict[str, str]:
    """NCCL's variables by which a rank has a host of its own; all data pass through sockets on loopback."""
    return {
        "NCCL_HOSTID": f"rank-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NET": "Socket",
        "NCCL_MNNVL_ENABLE": "0",
    }


def together(world: int, device: str, task: Callable[..., Any], *arguments: Any, limit_s: float = LIMIT_S) -> list[Any]:
    """What `task(rank, device, *arguments)` returns on each of `world` ranks of one process group.

    `device` is "cpu" or "cuda"; the task gets a torch.device. Raises RuntimeError with the traceback of the rank that
    failed first, or the exit code of one that died, and TimeoutError if ranks do not answer in `limit_s`.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = dict[Connection, int](), []
        for rank in range(world):
            here, there = FORKS.Pipe()
            asked = (rank, world, device, folder, limit_s, there, task, arguments)
            process = FORKS.Process(target=_rank, args=asked)
            process.start()
            there.close()
            pipes[here] = rank
            processes.append(process)
        try:
            return _answers(pipes, processes, limit_s)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _rank(
    rank: int, world: int, device: str, folder: str, limit_s: float, pipe: Connection, task: Callable[..., Any],
    arguments: Any,
) -> None:  # fmt: skip
    try:
        if device == "cuda" and world > torch.cuda.device_count():
            os.environ.update(environment(rank))
        place = devices.prepare(device, rank)
        store, timeout = dist.FileStore(str(Path(folder) / "store"), world), timedelta(seconds=limit_s)
        bound = place if place.type == "cuda" else None  # as in a training
        name = devices.backend(place)
        dist.init_process_group(name, store=store, rank=rank, world_size=world, timeout=timeout, device_id=bound)
        pipe.send((True, task(rank, place, *arguments)))
        pipe.poll(limit_s)  # ends with its process, once all have answered: a rank that leaves would break the others
    except Exception:
        pipe.send((False, traceback.format_exc()))


def _answers(pipes: dict[Connection, int], processes: Sequence[ForkServerProcess], limit_s: float) -> list[Any]:
    """The answers by rank; the first failure that comes is the cause of the others."""
    found, ends_s = dict[int, Any](), time.monotonic() + limit_s
    while waiting := [pipe for pipe, rank in pipes.items() if rank not in found]:
        ready = wait(waiting, max(0.0, ends_s - time.monotonic()))
        if not ready:
            late = ", ".join(str(pipes[pipe]) for pipe in waiting)
            raise TimeoutError(f"no answer in {limit_s:.0f} s from rank {late}")
        for pipe in cast("list[Connection]", ready):
            rank = pipes[pipe]
            try:
                good, found[rank] = pipe.recv()
            except EOFError:
                processes[rank].join(EXIT_S)
                raise RuntimeError(f"rank {rank} died: exit code {processes[rank].exitcode}") from None
            if not good:
                raise RuntimeError(f"rank {rank}:\n{found[rank]}")
    return [found[rank] for rank in sorted(found)]
