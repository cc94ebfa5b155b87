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

    def module(self, name: str) -> Any:
        """The module of a built-in, imported; None for a name of the user's own."""
        target = self.known.get(name)
        return importlib.import_module(target.partition(":")[0]) if target else None


def is_own(name: str) -> bool:
    """Whether `name` is the user's own function, as 'package.module:function'."""
    return len(name) <= 300 and re.fullmatch(OWN, name) is not None


def _modules(package: str, *names: str) -> Names:
    """Built-ins that are modules of a package, each with a function `build`."""
    return Names({name: f"{package}.{name.replace('-', '_')}:build" for name in names})


MODELS = _modules("torusrun.training.models", "resnet-digits", "resnet-small", "resnet18", "resnet50")
DATA_SETS = _modules(
    "torusrun.training.data", "digits", "cifar10", "mnist", "fashion-mnist", "imagefolder", "tar-shards", "synthetic"
)
OPTIMIZERS = _modules("torusrun.training.optim", "sgd", "lars", "rmsprop-warmup")
_DECAYS = ("cosine", "polynomial", "linear", "constant", "step", "cyclic-polynomial")
SCHEDULES = Names(
    {name: f"torusrun.training.schedule.learning_rate:build_{name.replace('-', '_')}" for name in _DECAYS}
)
RecipeName = Literal[
    "sony-224s", "sony-122s", "fujitsu-70s", "surfsara-28min", "fastai-18min", "facebook-1h", "pfn-15min",
    "tencent-6min", "nvidia-80s", "google-77s",
]  # fmt: skip
