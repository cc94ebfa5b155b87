"""Run by every rank of test_training_script.py, as a script of a user's own with `torusrun.Checkpoints`.

Its argument is a file of settings. `signals` has [rank, step, number]: that rank signals itself in that step.
`stops_writer` stops the process that writes before the first save.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torusrun

settings = json.loads(Path(sys.argv[1]).read_text())
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{settings['meet']}", rank=rank, world_size=world)
torch.manual_seed(0)
# A batch norm has statistics of its own on each rank; DDP takes rank 0's.
layers = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
model = DistributedDataParallel(layers, find_unused_parameters=True)
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [10, 30])
checkpoints = torusrun.Checkpoints(
    folder=settings["folder"], every=settings["every"], model=model, optimizer=optimizer, schedule=schedule
)
first = checkpoints.resume()
print(f"rank {rank} begins at {first}", file=sys.stderr, flush=True)
for step in range(first, settings["steps"]):
    model.zero_grad()
    numbers = torch.Generator().manual_seed(step * world + rank)
    model(torch.randn(8, 16, generator=numbers)).square().mean().backward()
    optimizer.step()
    schedule.step()
    for who, when, number in settings["signals"]:
        if (who, when) == (rank, step + 1):
            there = sorted(path.name for path in Path(settings["folder"]).glob("step-*"))
            print(f"rank {rank} is signalled, there are {there}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), number)
    checkpoints.after_step(step + 1)
    if settings["stops_writer"] and rank == 0 and step + 2 == settings["every"]:
        os.kill(checkpoints._writer._process.pid, signal.SIGSTOP)
    if checkpoints.asked_to_stop:
        lacks = "" if Path(settings["folder"], f"step-{step + 1:08d}").exists() else " and lacks its checkpoint"
        print(f"rank {rank} stops at {step + 1}{lacks}", file=sys.stderr, flush=True)
        os._exit(torusrun.LATER)
checkpoints.close()
dist.destroy_process_group()
