"""The facts of a model and of a data set for a prediction, from the modules of their builders, without torch.

A model's module has `facts(data: DataFacts, **options) -> ModelFacts`. A data set's has `facts(data: DataKeys)`, which
returns DataFacts, or None if nothing is known before the run. The user's own functions have neither: only a training
imports their modules.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from torusrun.training.recipe.names import DATA_SETS, MODELS
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import Train


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
