"""How a training computes: what its speed depends on besides its model, its batch and the device."""

from __future__ import annotations

import json
from dataclasses import dataclass

from torusrun.training.recipe.names import is_own
from torusrun.training.recipe.train import DataKeys, ModelKeys, Train

COMPILED, CHANNELS_FIRST, PASSES = "compiled", "channels first", "passes"
LAYOUT = "channels_last"  # an option of models; on a GPU the built-in ones have it unless it is false
STARTS = ("init", "last_std", "zero_bias", "zero_gamma")  # options of built-in models for their first weights


@dataclass(frozen=True)
class Variant:
    """`passes` are the backward passes of a rank in one step."""

    precision: str = "fp32"
    compiled: bool = False
    channels_first: bool = False
    passes: int = 1

    def __str__(self) -> str:
        """As in 'bf16, compiled, 4 passes'."""
        named = {COMPILED: self.compiled, CHANNELS_FIRST: self.channels_first}
        passes = [f"{self.passes} {PASSES}"] if self.passes > 1 else []
        return ", ".join([self.precision, *(word for word, holds in named.items() if holds), *passes])


def variant(train: Train) -> Variant:
    """The variant of a training."""
    return Variant(train.precision, train.compile, train.model.options.get(LAYOUT) is False, train.accumulate)


def program(train: Train) -> str:
    """The name under which a measurement is kept: 'resnet50, bf16, compiled', or the model alone without any keys."""
    model, chosen = named(train.model), variant(train)
    return model if chosen == Variant() else f"{model}, {chosen}"


def read_program(text: str, model: ModelKeys) -> Variant | None:
    """The variant in a name that `program` has made for this model; None for another model."""
    name = named(model)
    if text == name:
        return Variant()
    if not text.startswith(f"{name}, "):
        return None
    precision, *words = text.removeprefix(f"{name}, ").split(", ")
    passes = next((word.partition(" ")[0] for word in words if word.endswith(PASSES)), "1")
    return Variant(precision, COMPILED in words, CHANNELS_FIRST in words, int(passes) if passes.isdecimal() else 1)


def named(part: ModelKeys | DataKeys) -> str:
    """The name of a model or a data set with its options, without those that change neither work nor samples."""
    neutral = (LAYOUT,) if is_own(part.name) else (LAYOUT, *STARTS)
    options = {name: value for name, value in sorted(part.options.items()) if name not in neutral}
    return f"{part.name} {json.dumps(options)}" if options else part.name
