"""The facts of a training for a prediction, without torch: of its model and data set, and of how it computes.

The module of a built-in model has `build_X`, which builds it, and `facts_X(data: DataFacts, **options) -> ModelFacts`.
That of a data set has `facts_X(data: DataKeys)`, which returns DataFacts, or None if nothing is known before the run.
The user's own functions have no facts: only a training imports their modules.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass

from torusrun.training.recipe.names import DATA_SETS, MODELS, is_own
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, ModelKeys, Train


@dataclass(frozen=True)
class DataFacts:
    """The counts of a data set. `shape` is that of one sample."""

    train_samples: int
    test_samples: int
    classes: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A parameter tensor, and its multiply-adds in a forward pass of one sample."""

    parameters: int
    work: float


@dataclass(frozen=True)
class ModelFacts:
    """`tensors` in the order of the model's parameters, and the channels of each of its batch norms, `norms`."""

    tensors: tuple[Tensor, ...]
    norms: tuple[int, ...]

    @property
    def statistics(self) -> int:
        """The count of numbers in the running statistics: a mean and a variance for each channel."""
        return 2 * sum(self.norms)


def data_facts(train: Train) -> DataFacts | None:
    """The facts of the recipe's data set; None for the user's own, and for files that this machine cannot see."""
    facts_of = DATA_SETS.function(train.data.name, "facts")
    facts: DataFacts | None = facts_of and facts_of(train.data)
    return facts


def model_facts(train: Train, data: DataFacts) -> ModelFacts | None:
    """The facts of the recipe's model when it learns `data`; None for the user's own.

    Raises ConfigError for options that the model does not have.
    """
    facts_of = MODELS.function(train.model.name, "facts")
    if facts_of is None:
        return None
    try:
        inspect.signature(facts_of).bind(data, **train.model.options)
    except TypeError as error:
        raise ConfigError(f"train.model.options: {train.model.name} does not take them: {error}") from None
    facts: ModelFacts = facts_of(data, **train.model.options)
    return facts


COMPILED, CHANNELS_FIRST, PASSES = "compiled", "channels first", "passes"
LAYOUT = "channels_last"  # an option of models; on a GPU built-in models have it unless it is false
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


def compiles(train: Train, gpu: bool) -> bool:
    """Whether its network is compiled, if the device can; by default a built-in network on a GPU."""
    return gpu and train.model.name in MODELS.known if train.compile is None else train.compile


def variant(train: Train) -> Variant:
    """The variant of a training whose `compile` is decided."""
    return Variant(train.precision, bool(train.compile), train.model.options.get(LAYOUT) is False, train.accumulate)


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
