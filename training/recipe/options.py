"""The checks of built-ins' options before the job waits in the queue: nothing is built, torch is not imported."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator

from torusrun.training.data.images.stored import check_options, facts_of
from torusrun.training.data.packed.sources import SOURCES
from torusrun.training.recipe.facts import DataFacts, data_facts, model_facts
from torusrun.training.recipe.fits import OF_FILES
from torusrun.training.recipe.names import DATA_SETS, MODELS, Names
from torusrun.training.recipe.near import did_you_mean
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import Train

OF_OPTIMIZERS = {"sgd": (), "lars": (), "rmsprop-warmup": ("mu2", "eps", "centre", "period", "rms_rate")}


def complaints(train: Train) -> Iterator[tuple[str, str]]:
    """(key, error) for invalid options of built-ins; only the ranks know the options of the user's own functions."""
    data, model, optimizer = train.data, train.model, train.optimizer
    unknown = [
        *_unknown("train.data", data.name, data.options, _taken(DATA_SETS, data.name, "seed")),
        *_unknown("train.model", model.name, model.options, _taken(MODELS, model.name, "classes", "shape", "seed")),
        *_unknown("train.optimizer", optimizer.name, optimizer.options, OF_OPTIMIZERS.get(optimizer.name)),
    ]
    yield from unknown
    if unknown:
        return
    try:
        if data.name in (*OF_FILES, *SOURCES):
            check_options(data)
    except ConfigError as error:
        yield "train.data.options", str(error)
    try:
        if facts := _facts(train):
            model_facts(train, facts)
    except ConfigError as error:
        yield "train.model", str(error)


def _taken(names: Names, name: str, *given: str) -> tuple[str, ...] | None:
    """The options of a built-in, beside the `given` arguments; None if `name` is not a built-in."""
    build = names.function(name, "build")
    return build and tuple(each for each in inspect.signature(build).parameters if each not in given)


def _unknown(key: str, name: str, options: Iterable[str], taken: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    if taken is None:
        return
    for option in options:
        if option not in taken:
            advice = did_you_mean(option, taken) or f"; it takes {', '.join(taken) or 'none'}"
            yield f"{key}.options", f"{key}.options.{option}: {name} has no such option{advice}"


def _facts(train: Train) -> DataFacts | None:
    """The facts of the data set, found without listing files."""
    return facts_of(train.data, 1, 1, 1) if train.data.name in OF_FILES else data_facts(train)
