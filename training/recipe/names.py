"""The names in a recipe: a built-in of torusrun, or the user's own function as `package.module:function`.

A name stands for the function that builds the thing. The modules of models and data sets import torch only to build
it, so the login node can import them. Every error of a builder is a ConfigError with the key.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torusrun.training.recipe.near import did_you_mean
from torusrun.training.recipe.reading import ConfigError

OWN = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Names:
    """The built-ins of a kind by their names, each with its builder as 'module:function'."""

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


class Section(Protocol):
    """The keys of a recipe that name a builder, and its arguments."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Mapping[str, Any]: ...


def is_own(name: str) -> bool:
    """Whether `name` is the user's own function, as 'package.module:function'."""
    return len(name) <= 300 and re.fullmatch(OWN, name) is not None


def _named(package: str, **builders: str) -> Names:
    """Built-ins with their functions, as 'module:function' in a package."""
    return Names({name.replace("_", "-"): f"torusrun.training.{package}.{target}" for name, target in builders.items()})


MODELS = _named(
    "models",
    resnet_digits="residual:build_digits",
    resnet_small="residual:build_small",
    resnet18="residual:build_resnet18",
    resnet50="residual:build_resnet50",
)
DATA_SETS = _named(
    "data",
    digits="named:build_digits",
    cifar10="named:build_cifar10",
    mnist="named:build_mnist",
    imagefolder="image_files:build_imagefolder",
    tar_shards="image_files:build_tar_shards",
    synthetic="named:build_synthetic",
)
OPTIMIZERS = _named("optim", sgd="sgd:build", lars="lars:build", rmsprop_warmup="rmsprop_warmup:build")
_DECAYS = ("cosine", "polynomial", "linear", "constant", "step")
SCHEDULES = Names({name: f"torusrun.training.schedule:build_{name.replace('-', '_')}" for name in _DECAYS})
RecipeName = Literal[
    "sony-224s", "sony-122s", "fujitsu-70s", "surfsara-28min", "fastai-18min", "facebook-1h", "pfn-15min",
    "tencent-6min", "nvidia-80s", "google-77s",
]  # fmt: skip


def build(key: str, section: Section, names: Names, *arguments: Any, **keywords: Any) -> Any:
    """The result of the builder of `section`, which is at `key` of the config."""
    function = _function(f"{key}.name", names.known.get(section.name, section.name))
    try:
        inspect.signature(function).bind(*arguments, **keywords, **section.options)
    except TypeError as error:
        given = [*(type(each).__name__ for each in arguments), *keywords, *section.options]
        raise ConfigError(
            f"{key}: {section.name} does not accept its arguments ({', '.join(given)}; from {key}.options: "
            f"{', '.join(section.options) or 'none'}): {error}"
        ) from None
    return function(*arguments, **keywords, **section.options)


def expect(key: str, section: Section, built: object, wanted: str, attributes: Iterable[str]) -> None:
    """Raises ConfigError unless `built` has all `attributes` of the `wanted` thing."""
    missing = [name for name in attributes if not hasattr(built, name)]
    if missing:
        raise ConfigError(
            f"{key}: {section.name} returned {type(built).__name__!r}, which is not {wanted}: it has no "
            f"{', '.join(missing)}; training/recipe/protocols.py says what it needs"
        )


def _function(key: str, target: str) -> Callable[..., Any]:
    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its imports does not
        raise ConfigError(
            f"{key}: there is no module {error.name!r} on the ranks' Python path; "
            "put it into the folder of the run's code, or install it in the ranks' Python"
        ) from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None or not callable(function):
        hint = did_you_mean(name, dir(module)) or "; define it there"
        raise ConfigError(f"{key}: module {module_name!r} ({module.__file__}) has no function {name!r}{hint}")
    return function
