"""The names in a recipe: a built-in of torusrun, or the user's own function as `package.module:function`.

A name stands for the function that builds the thing. The modules of models and data sets import torch only to build
it, so the login node can import them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

OWN = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Names:
    """The built-ins of one kind by their names, each with its builder as 'module:function'."""

    known: Mapping[str, str]

    def complaint(self, value: str) -> str | None:
        if value in self.known or is_own(value):
            return None
        return f"must be one of {', '.join(self.known)}, or package.module:function for one of your own"

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self.known)}, {"pattern": f"^{OWN}$"}]}

    def function(self, name: str, part: str) -> Any:
        """The function `build` or `facts` of a built-in, imported; None for a name of the user's own."""
        module, _, builder = self.known.get(name, "").partition(":")
        return getattr(importlib.import_module(module), builder.replace("build", part)) if module else None


def is_own(name: str) -> bool:
    """Whether `name` is the user's own function, as 'package.module:function'."""
    return len(name) <= 300 and re.fullmatch(OWN, name) is not None


def _named(package: str, **builders: str) -> Names:
    """Built-ins with their functions, as 'module:function' in a package."""
    return Names({name.replace("_", "-"): f"torusrun.training.{package}.{target}" for name, target in builders.items()})


MODELS = _named(
    "models",
    resnet_digits="resnet_small:build_digits",
    resnet_small="resnet_small:build",
    resnet18="residual:build_resnet18",
    resnet50="residual:build_resnet50",
)
DATA_SETS = _named(
    "data",
    digits="digits:build",
    cifar10="packed.named:build_cifar10",
    mnist="packed.named:build_mnist",
    fashion_mnist="packed.named:build_fashion_mnist",
    imagefolder="image_files:build_imagefolder",
    tar_shards="image_files:build_tar_shards",
    synthetic="synthetic:build",
)
OPTIMIZERS = _named("optim", sgd="sgd:build", lars="lars:build", rmsprop_warmup="rmsprop_warmup:build")
_DECAYS = ("cosine", "polynomial", "linear", "constant", "step")
SCHEDULES = Names(
    {name: f"torusrun.training.schedule.learning_rate:build_{name.replace('-', '_')}" for name in _DECAYS}
)
RecipeName = Literal[
    "sony-224s", "sony-122s", "fujitsu-70s", "surfsara-28min", "fastai-18min", "facebook-1h", "pfn-15min",
    "tencent-6min", "nvidia-80s", "google-77s",
]  # fmt: skip
