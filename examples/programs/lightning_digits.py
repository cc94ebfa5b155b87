"""Training on scikit-learn's digits with Lightning.

    torchrun --nproc-per-node 4 lightning_digits.py --devices 4 --steps 400

Lightning's ModelCheckpoint saves `last.ckpt`, from which the next start continues. Its CSV logger writes the metrics.
"""

import argparse
import hashlib
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(L.LightningModule):
    def __init__(self, pause: float) -> None:
        super().__init__()
        self.pause = pause
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        if self.trainer.is_global_zero and self.global_step % 10 == 0:
            print(f"step={self.global_step} loss={loss.item():.4f}", flush=True)
        time.sleep(self.pause)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        print(
            f"rank {self.global_rank} of {self.trainer.world_size} resumes at step={checkpoint['global_step']}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1, help="processes of each node")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait in each step")
    parser.add_argument("--checkpoints", default="ckpt")
    args = parser.parse_args()

    L.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    keep = ModelCheckpoint(args.checkpoints, every_n_train_steps=args.every, save_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=args.devices,
        num_nodes=args.nodes,
        strategy="ddp",
        max_steps=args.steps,
        callbacks=[keep],
        logger=CSVLogger("logs"),
        log_every_n_steps=10,
        enable_progress_bar=False,
    )
    model = Digits(args.pause)
    trainer.fit(model, loader, ckpt_path="last")
    if trainer.is_global_zero:
        weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        loss = trainer.callback_metrics["loss"].item()
        checksum = hashlib.sha256(weights).hexdigest()[:16]
        print(f"done step={trainer.global_step} loss={loss:.6f} checksum={checksum}", flush=True)


if __name__ == "__main__":
    main()
