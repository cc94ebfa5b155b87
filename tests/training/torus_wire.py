"""Run inside an empty network namespace: what all-reduces really put on the loopback device.

Prints JSON, of each: bytes that the ranks counted, in all and by level, and bytes that the kernel counted.
Usage: torus_wire.py X Y ELEMENTS FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.collectives.all_reduce import build
from torusrun.training.collectives.chunks import Span
from torusrun.training.collectives.interface import AllReduce


def main(x_ranks: int, y_ranks: int, elements: int, folder: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    children = []
    for rank in range(1, x_ranks * y_ranks):
        child = os.fork()
        if child == 0:
            measure(rank, x_ranks, y_ranks, elements, folder)
            os._exit(0)
        children.append(child)
    print(json.dumps(measure(0, x_ranks, y_ranks, elements, folder)))
    for child in children:
        os.waitpid(child, 0)


def measure(rank: int, x_ranks: int, y_ranks: int, elements: int, folder: Path) -> dict[str, Any]:
    """Of the torus, and of the hybrid for a vector that is short and for one that is long enough for the ring."""
    world = x_ranks * y_ranks
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    dims = (x_ranks, y_ranks)
    found = {"torus": of(build("torus", dims), elements)}
    for name, hybrid_bytes in (("short", 4 * elements + 1), ("long", 4 * elements)):
        spans = (Span(0, "hierarchical"), Span(hybrid_bytes, "flat"))
        found[name] = of(build("hybrid", dims, spans=spans), elements)
    return found


def of(all_reduce: AllReduce, elements: int) -> dict[str, Any]:
    buffer = torch.ones(elements)
    all_reduce.mean_(buffer)
    counted = torch.tensor(all_reduce.wire_bytes, dtype=torch.float64)
    dist.all_reduce(counted)
    dist.barrier()
    before_bytes = lo_bytes()
    dist.barrier()
    all_reduce.mean_(buffer)
    dist.barrier()
    return {"counted": sum(counted.tolist()), "levels": counted.tolist(), "wire": lo_bytes() - before_bytes}


def lo_bytes() -> int:
    line = next(line for line in Path("/proc/self/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
