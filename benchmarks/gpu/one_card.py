"""Several ranks on the cards of this machine, more ranks than cards if need be, or on its CPU.

NCCL refuses two ranks with one card, unless they are on different hosts. NCCL_HOSTID names a rank's host, so each rank
gets a host of its own, and they exchange data through sockets on the loopback interface (NCCL's documentation of its
variables, from memory; not tried on a card yet). Such ranks share the card by time slices, so their times are not those
of ranks with cards of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.collectives import device as devices

LIMIT_S = 180.0
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch.distributed", "training.learner"])


def environment(rank: int) -> dict[str, str]:
    """NCCL's variables by which a rank has a host of its own; all data pass through sockets on loopback."""
    return {
        "NCCL_HOSTID": f"rank-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_NET": "Socket",
        "NCCL_MNNVL_ENABLE": "0",
    }


def together(world: int, device: str, task: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `task(rank, device, *arguments)` returns on each of `world` ranks of one process group.

    `device` is "cpu" or "cuda"; the task gets a torch.device. Raises RuntimeError with a rank's traceback, and
    TimeoutError if a rank does not answer in LIMIT_S.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = list[Connection](), []
        for rank in range(world):
            here, there = FORKS.Pipe()
            process = FORKS.Process(target=_rank, args=(rank, world, device, folder, there, task, arguments))
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
        try:
            return [_answer(rank, pipe) for rank, pipe in enumerate(pipes)]
        finally:
            for process in processes:
                process.kill()
                process.join()


def _rank(
    rank: int, world: int, device: str, folder: str, pipe: Connection, task: Callable[..., Any], arguments: Any
) -> None:
    try:
        if device == "cuda" and world > torch.cuda.device_count():
            os.environ.update(environment(rank))
        place = devices.prepare(device, rank)
        store, timeout = dist.FileStore(str(Path(folder) / "store"), world), timedelta(seconds=LIMIT_S)
        dist.init_process_group(devices.backend(place), store=store, rank=rank, world_size=world, timeout=timeout)
        pipe.send((True, task(rank, place, *arguments)))
        pipe.poll(LIMIT_S)  # ends with its process, once all have answered: a rank that leaves would break the others
    except Exception:
        pipe.send((False, traceback.format_exc()))


def _answer(rank: int, pipe: Connection) -> Any:
    if not pipe.poll(LIMIT_S):
        raise TimeoutError(f"rank {rank} did not answer in {LIMIT_S:.0f} s")
    good, found = pipe.recv()
    if not good:
        raise RuntimeError(f"rank {rank}:\n{found}")
    return found
