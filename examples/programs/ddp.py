"""Distributed data parallel training on scikit-learn's digits, as a script for torchrun is usually written.

    torchrun --nproc-per-node 4 ddp.py --steps 400

It saves a checkpoint every `--every` steps and continues from the newest one. At SIGUSR1 it saves one more and ends
with exit code 75: there is more to do.
"""

import argparse
import gc
import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.nn  # DDP imports it, and its functions keep the group that exists at that moment
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GO_ON_LATER = 75


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--checkpoints", type=Path, default=Path("ckpt"))
    args = parser.parse_args()

    dist.init_process_group("gloo")
    code = train(args)
    # First the model, which holds the group. Threads of a group that is left when Python ends may abort the process.
    gc.collect()
    dist.destroy_process_group()
    return code


def train(args: argparse.Namespace) -> int:
    """Train to the last step, or until SIGUSR1; the exit code."""
    stop = torch.zeros(1)
    signal.signal(signal.SIGUSR1, lambda number, frame: stop.fill_(1))
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    # Without this, DDP sums in another order in its first step, and a resumed run differs in its last bits.
    model = DistributedDataParallel(layers, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)

    step, loss = 0, torch.zeros(())
    args.checkpoints.mkdir(parents=True, exist_ok=True)
    if saved := sorted(args.checkpoints.glob("step-*.pt")):
        state = torch.load(saved[-1], weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, loss = state["step"], state["loss"]
        print(f"rank {rank} of {dist.get_world_size()} resumes at step={step} from {saved[-1]}", flush=True)

    def save() -> None:
        if rank == 0:
            path = args.checkpoints / f"step-{step:06d}.pt"
            state = {
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "loss": loss,
            }
            torch.save(state, path.with_suffix(".tmp"))
            os.replace(path.with_suffix(".tmp"), path)

    while step < args.steps:
        epoch, done = divmod(step, len(loader))
        sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader):
            if number < done or step == args.steps:
                continue
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss, step = loss.detach(), step + 1
            if rank == 0 and step % 10 == 0:
                print(f"step={step} loss={loss.item():.4f}", flush=True)
            if step % args.every == 0:
                save()
            asked = stop.clone()
            dist.all_reduce(asked, dist.ReduceOp.MAX)
            if asked:
                save()
                return GO_ON_LATER
            time.sleep(args.pause)

    if rank == 0:
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        print(
            f"done step={step} loss={loss.item():.6f} checksum={hashlib.sha256(weights).hexdigest()[:16]}", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
