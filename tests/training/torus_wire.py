"""Run inside an empty network namespace: what one torus all-reduce really puts on the loopback device.

Prints JSON: bytes counted by the ranks, bytes counted by the kernel. Usage: torus_wire.py X Y ELEMENTS FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from training.collectives.all_reduce import build


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


def measure(rank: int, x_ranks: int, y_ranks: int, elements: int, folder: Path) -> dict[str, float]:
    world = x_ranks * y_ranks
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    torus = build("torus", (x_ranks, y_ranks))
    buffer = torch.ones(elements)
    torus.mean_(buffer)
    counted = torch.tensor([sum(torus.wire_bytes)], dtype=torch.float64)
    dist.all_reduce(counted)
    dist.barrier()
    before_bytes = lo_bytes()
    dist.barrier()
    torus.mean_(buffer)
    dist.barrier()
    return {"counted": counted.item(), "wire": lo_bytes() - before_bytes}


def lo_bytes() -> int:
    line = next(line for line in Path("/proc/self/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
