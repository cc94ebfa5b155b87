"""Ranks of torch.distributed in the namespaces of shaped racks: one process each, gloo between them."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.shaped_racks import ShapedRacks

CLONE_NEWNET = 0x40000000

Work = Callable[[int], Any]


def together(lab: ShapedRacks, hosts: Sequence[str], per_node: int, work: Work) -> Any:
    """Call `work(rank)` on `per_node` consecutive ranks of every host, in a process group; returns rank 0's result."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(len(hosts) * per_node):
            child = os.fork()
            if child == 0:
                os._exit(_rank(lab.namespace(hosts[rank // per_node]), rank, len(hosts) * per_node, work, Path(folder)))
            children.append(child)
        if any([os.waitpid(child, 0)[1] for child in children]):
            raise SystemExit("a rank failed")
        return json.loads((Path(folder) / "result").read_text())


def times_s(act: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> list[float]:
    """The time of each call until the last rank is done; one call before them is left out.

    All ranks call `before`, and then begin at the same time.
    """
    taken_s = torch.zeros(rounds + 1, dtype=torch.float64)
    for i in range(rounds + 1):
        before()
        dist.barrier()
        started_s = time.perf_counter()
        act()
        taken_s[i] = time.perf_counter() - started_s
    dist.all_reduce(taken_s, dist.ReduceOp.MAX)
    found_s: list[float] = taken_s[1:].tolist()
    return found_s


def _rank(namespace: str, rank: int, ranks: int, work: Work, folder: Path) -> int:
    try:
        with open(namespace) as handle:
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), ranks), rank=rank, world_size=ranks)
        result = work(rank)
        if rank == 0:
            (folder / "result").write_text(json.dumps(result))
        dist.barrier()
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
