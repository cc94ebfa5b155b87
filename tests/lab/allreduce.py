"""A rank of a gloo all-reduce, started by srun: prints its host and the sum of all rank numbers."""

from __future__ import annotations

import os
import socket

import torch
import torch.distributed as dist


def main() -> None:
    rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=size)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    print(rank, socket.gethostname(), int(total.item()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
