"""Run by every rank of test_training_shards.py: a script whose model is spread over the ranks.

Its argument is a file of settings. `signals` has [rank, step, number]: that rank signals itself in that step. The last
rank whose process writes is stopped before the first save if `stops_writer`. The process of the rank `full_disk` cannot
write. The whole weights end in `weights`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torusrun

settings = json.loads(Path(sys.argv[1]).read_text())
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{settings['meet']}", rank=rank, world_size=world)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 4))
if settings["tensor_parallel"]:
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
else:
    fully_shard(model[0])
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [10, 20])
checkpoints = torusrun.Checkpoints(
    folder=settings["folder"], every=settings["every"], model=model, optimizer=optimizer, schedule=schedule
)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
if settings["full_disk"] == rank:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limits[1]))  # of its writer, which starts now
first = checkpoints.resume()
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(f"rank {rank} of {world} begins at {first}", file=sys.stderr, flush=True)
for step in range(first, settings["steps"]):
    batch = torch.randn(12, 16, generator=torch.Generator().manual_seed(step))
    mine = batch if settings["tensor_parallel"] else batch[rank::world]
    optimizer.zero_grad()
    (model(mine) - mine[:, :4]).square().mean().backward()
    optimizer.step()
    schedule.step()
    for who, when, number in settings["signals"]:
        if (who, when) == (rank, step + 1):
            os.kill(os.getpid(), number)
    if settings["stops_writer"] and rank == world - 1 and step + 1 == settings["every"]:
        os.kill(checkpoints._writer._process.pid, signal.SIGSTOP)
    checkpoints.after_step(step + 1)
    if checkpoints.asked_to_stop:
        there = Path(settings["folder"], f"step-{step + 1:08d}").exists()
        print(f"rank {rank} stops at {step + 1}, {there}", file=sys.stderr, flush=True)
        os._exit(torusrun.LATER)
checkpoints.close()
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if rank == 0:
    torch.save(whole, settings["weights"])
dist.destroy_process_group()
