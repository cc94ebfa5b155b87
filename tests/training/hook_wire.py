"""Run by every rank, in an empty network namespace: DDP's gradients with and without the hook, and the bytes sent.

Prints JSON on rank 0. It stands for a user's script: it imports a folder of its own called `training`.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torusrun
import training  # type: ignore[import-not-found, unused-ignore]

assert training.WHOSE == "the script's"  # type: ignore[attr-defined, unused-ignore]


def lo_bytes() -> int:
    line = next(line for line in Path("/proc/self/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def gradients(model: DistributedDataParallel) -> torch.Tensor:
    """The gradients of one backward, flat, and on the way the bytes on the wire."""
    torch.manual_seed(dist.get_rank())
    model.zero_grad()
    model(torch.randn(4, 512)).square().mean().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def made() -> DistributedDataParallel:
    torch.manual_seed(7)
    return DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))))


torch.set_num_threads(1)
dist.init_process_group("gloo")
usual = gradients(made())
model = made()
hook = torusrun.torus_hook()
model.register_comm_hook(None, hook)
gradients(model)  # DDP orders its buckets anew after the first
sent_before = sum(hook.torus.wire_bytes)  # type: ignore[attr-defined]
dist.barrier()
before = lo_bytes()
dist.barrier()
found = gradients(model)
dist.barrier()
wire = lo_bytes() - before
counted = torch.tensor([sum(hook.torus.wire_bytes) - sent_before])  # type: ignore[attr-defined]
dist.all_reduce(counted)
if dist.get_rank() == 0:
    worst = (usual - found).abs().max() / usual.abs().max()
    print(json.dumps({"worst": worst.item(), "bytes": found.nbytes, "wire": wire, "counted": counted.item()}))
dist.destroy_process_group()
