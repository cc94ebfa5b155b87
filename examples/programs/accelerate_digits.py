"""Training on scikit-learn's digits with Accelerate.

    torchrun --nproc-per-node 4 accelerate_digits.py --cpu --steps 400

`save_state` writes a folder of files every `--every` steps; a start continues from the newest whole one.
"""

import argparse
import hashlib
import shutil
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, DistributedDataParallelKwargs, set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    parser.add_argument("--checkpoints", type=Path, default=Path("ckpt"))
    args = parser.parse_args()

    loading = DataLoaderConfiguration(use_seedable_sampler=True)
    # Without this, DDP sums in another order in its first step, and a resumed run differs in its last bits.
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(cpu=args.cpu, dataloader_config=loading, kwargs_handlers=[ddp])
    set_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step, loss = 0, torch.zeros(())
    if saved := sorted(args.checkpoints.glob("step-*")):
        accelerator.load_state(str(saved[-1]))
        step = int(saved[-1].name.removeprefix("step-"))
        where = f"rank {accelerator.process_index} of {accelerator.num_processes}"
        print(f"{where} resumes at step={step} from {saved[-1]}", flush=True)

    while step < args.steps:
        epoch, done = divmod(step, len(loader))
        loader.set_epoch(epoch)
        for x, y in accelerator.skip_first_batches(loader, done):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                accelerator.print(f"step={step} loss={loss.item():.4f}", flush=True)
            if step % args.every == 0:
                save(accelerator, args.checkpoints, step)
            time.sleep(args.pause)
            if step == args.steps:
                break

    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    checksum = hashlib.sha256(weights).hexdigest()[:16]
    accelerator.print(f"done step={step} loss={loss.item():.6f} checksum={checksum}", flush=True)
    accelerator.end_training()


def save(accelerator: Accelerator, checkpoints: Path, step: int) -> None:
    """Every process writes its part; the folder gets its name once all have."""
    unfinished = checkpoints / "unfinished"
    if accelerator.is_main_process:
        shutil.rmtree(unfinished, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(unfinished))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unfinished.rename(checkpoints / f"step-{step:06d}")
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
