"""Distributed data parallel training on scikit-learn's digits, with the checkpoints of torusrun.

torusrun submit saved_ddp.yaml
"""

import argparse
import gc
import hashlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.nn  # DDP imports it, and its functions keep the group that exists at that moment
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torusrun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, help="steps between checkpoints; default: torusrun chooses")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    code = train(args)
    # First the model, which holds the group. Threads of a group that is left when Python ends may abort the process.
    gc.collect()
    dist.destroy_process_group()
    sys.exit(code)


def train(args: argparse.Namespace) -> int:
    """Train to the last step, or until a request to stop; the exit code."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    # Without this, DDP sums in another order in its first step, and a resumed run differs in its last bits.
    model = DistributedDataParallel(layers, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    images, labels = (torch.tensor(each) for each in load_digits(return_X_y=True))

    checkpoints = torusrun.Checkpoints(
        model=model, optimizer=optimizer, schedule=schedule, every=args.every, folder="ckpt"
    )
    first = checkpoints.resume()
    print(f"rank {rank} of {dist.get_world_size()} begins at step={first}", flush=True)
    for step in range(first, args.steps):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))
        mine = order[rank * 32 : (rank + 1) * 32]
        loss = nn.functional.cross_entropy(model(images[mine].float() / 16), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step={step + 1} loss={loss.item():.4f}", flush=True)
        checkpoints.after_step(step + 1)
        if checkpoints.asked_to_stop:
            return torusrun.LATER
        time.sleep(args.pause)
    checkpoints.close()

    if rank == 0:
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(f"done step={args.steps} checksum={hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    return 0


if __name__ == "__main__":
    main()
