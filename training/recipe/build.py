"""Calls the builder that a section of a recipe names. Every error is a ConfigError with the key."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from torusrun.training.recipe.names import Names
from torusrun.training.recipe.near import did_you_mean
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, ScheduleKeys

Section = ModelKeys | DataKeys | OptimizerKeys | ScheduleKeys
"""A section of a recipe that names a builder."""


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
    found: Callable[..., Any] | None = getattr(module, name, None)
    if found is None or not callable(found):
        hint = did_you_mean(name, dir(module)) or "; define it there"
        raise ConfigError(f"{key}: module {module_name!r} ({module.__file__}) has no function {name!r}{hint}")
    return found
