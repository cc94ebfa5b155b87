"""The names in a recipe: a built-in of torusrun, or the user's own function as `package.module:function`.

A name stands for the function that builds the thing. Its module is imported only when the thing is built, so programs
on the login node do not import torch.
"""

from __future__ import annotations

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


def is_own(name: str) -> bool:
    """Whether `name` is the user's own function, as 'package.module:function'."""
    return len(name) <= 300 and re.fullmatch(OWN, name) is not None


MODELS = Names(
    {
        "resnet-digits": "training.models.resnet_digits:build",
        "resnet18": "training.models.resnet18:build",
        "resnet50": "training.models.resnet50:build",
    }
)
DATA_SETS = Names(
    {
        "digits": "training.data.digits:build",
        "imagefolder": "training.data.imagefolder:build",
        "tar-shards": "training.data.tar_shards:build",
        "synthetic": "training.data.synthetic:build",
    }
)
OPTIMIZERS = Names(
    {
        "sgd": "training.optim.sgd:build",
        "lars": "training.optim.lars:build",
        "rmsprop-warmup": "training.optim.rmsprop_warmup:build",
    }
)
SCHEDULES = Names(
    {
        "cosine": "training.schedule.learning_rate:build_cosine",
        "polynomial": "training.schedule.learning_rate:build_polynomial",
        "linear": "training.schedule.learning_rate:build_linear",
        "constant": "training.schedule.learning_rate:build_constant",
        "step": "training.schedule.learning_rate:build_step",
        "cyclic-polynomial": "training.schedule.learning_rate:build_cyclic_polynomial",
    }
)
RecipeName = Literal[
    "sony-224s",
    "sony-122s",
    "fujitsu-70s",
    "surfsara-28min",
    "fastai-18min",
    "facebook-1h",
    "pfn-15min",
    "tencent-6min",
    "nvidia-80s",
    "google-77s",
]
