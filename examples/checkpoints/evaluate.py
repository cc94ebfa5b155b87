"""Evaluates one checkpoint of saved_ddp.py: a role that torusrun starts for each of them."""

import json
import os
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn


def main() -> None:
    checkpoint = Path(os.environ["TORUSRUN_CHECKPOINT"])
    saved = torch.load(checkpoint / "state.pt", weights_only=True)["model"]
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model.load_state_dict({name.removeprefix("module."): value for name, value in saved.items()})
    images, labels = (torch.tensor(each) for each in load_digits(return_X_y=True))
    with torch.no_grad():
        right = model(images.float() / 16).argmax(1) == labels
    accuracy = float(right.float().mean())
    print(f"{checkpoint.name} accuracy={accuracy:.4f}", flush=True)
    with open(os.environ["TORUSRUN_METRICS"], "a", encoding="utf-8") as metrics:
        metrics.write(json.dumps({"accuracy": accuracy}) + "\n")


if __name__ == "__main__":
    main()
