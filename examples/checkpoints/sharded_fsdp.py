"""A small transformer that learns the text of Python's argparse, sharded by FSDP2, with the checkpoints of torusrun.

torusrun submit sharded_fsdp.yaml
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torusrun

BATCH, LENGTH, WIDTH = 16, 64, 64


class Transformer(nn.Module):
    """The loss of guessing each byte of a text from those before it."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.logits = nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        values = self.bytes(text[:, :-1]) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            values = block(values, src_mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.logits(values).flatten(0, 1), text[:, 1:].flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, help="steps between checkpoints; default: torusrun chooses")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait after each step")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    code = train(args)
    dist.destroy_process_group()
    sys.exit(code)


def train(args: argparse.Namespace) -> int:
    """Train to the last step, or until a request to stop; the exit code."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Transformer()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    text = torch.tensor(list(Path(argparse.__file__).read_bytes()))

    checkpoints = torusrun.Checkpoints(
        model=model, optimizer=optimizer, schedule=schedule, every=args.every, folder="ckpt"
    )
    first = checkpoints.resume()
    print(f"rank {rank} of {ranks} begins at step={first}", flush=True)
    for step in range(first, args.steps):
        # The batch is the same on any number of ranks, and each takes its share of it.
        begins = torch.randint(len(text) - LENGTH, [BATCH], generator=torch.Generator().manual_seed(step))
        loss = model(torch.stack([text[begin : begin + LENGTH + 1] for begin in begins[rank::ranks]]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 10 == 0:
            dist.all_reduce(mean := loss.detach() / ranks)
            if rank == 0:
                print(f"step={step + 1} loss={mean.item():.6f}", flush=True)
        checkpoints.after_step(step + 1)
        if checkpoints.asked_to_stop:
            return torusrun.LATER
        time.sleep(args.pause)
    checkpoints.close()
    return 0


if __name__ == "__main__":
    main()
