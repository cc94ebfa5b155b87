"""What torchvision's ResNets are: parameters' names and shapes, and outputs for weights made by a formula.

The record lets the comparison run where torchvision is not. `python tests/training/torchvision_record.py` writes it
again where torchvision can be imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

RECORD = Path(__file__).with_name("torchvision-resnets.json")
NAMES = ("resnet18", "resnet50")
PIXELS = 65, 97  # of the image: odd, so that rounding of halves shows


PERIOD = 10_007


def fill(model: nn.Module) -> None:
    """Other numbers in every tensor, by whole-number arithmetic: the same everywhere."""
    for number, (name, tensor) in enumerate(model.state_dict().items()):
        if not tensor.is_floating_point():
            tensor.zero_()
            continue
        values = (numbered(tensor.numel(), number) - 0.5).view(tensor.shape)
        if tensor.ndim > 1:
            tensor.copy_(values * (12 / tensor[0].numel()) ** 0.5)
        elif name.endswith(("running_var", "weight")):
            tensor.copy_(0.75 + values / 2)
        else:
            tensor.copy_(values / 2)


def numbered(count: int, first: int) -> Tensor:
    """From 0 to 1, without an order that one sees."""
    period = ((torch.arange(PERIOD) + first) * 7919 % PERIOD).double() / PERIOD
    return period.repeat(-(-count // PERIOD))[:count]


@torch.no_grad()
def described(model: nn.Module) -> dict[str, Any]:
    """The state's names and shapes in order, which of them are learned, and the outputs for one image."""
    image = (numbered(3 * PIXELS[0] * PIXELS[1], 0) - 0.5).view(1, 3, *PIXELS).float()
    return {
        "state": [[name, list(tensor.shape)] for name, tensor in model.state_dict().items()],
        "parameters": [name for name, _ in model.named_parameters()],
        "outputs": model.eval()(image)[0, :20].tolist(),
    }


def theirs() -> Any:
    """torchvision's models. Raises ImportError or RuntimeError where it does not go with this torch."""
    from torchvision import models

    return models


if __name__ == "__main__":
    import torchvision

    made = {name: getattr(theirs(), name)() for name in NAMES}
    for model in made.values():
        fill(model)
    found = {name: described(model) for name, model in made.items()}
    RECORD.write_text(json.dumps({"torchvision": torchvision.__version__, **found}) + "\n")
