"""Writes a spec back as a user would write it, for the plan file in the run folder."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any, get_args, get_origin

from torusrun.orchestrator.base.typed import hints_of
from torusrun.orchestrator.keys.kinds import Kind
from torusrun.training.recipe.key import key_of


def as_written(record: Any) -> dict[str, Any]:
    """A spec as plain values under its YAML keys; `read` makes the same spec from it."""
    hints = hints_of(type(record))
    return {key_of(f): _value(hints[f.name], getattr(record, f.name)) for f in dataclasses.fields(record)}


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) in (types.UnionType, typing.Union):
        hint = get_args(hint)[0]
    if get_origin(hint) is Annotated and isinstance(extra := get_args(hint)[1], Kind):
        return extra.write(value)
    if dataclasses.is_dataclass(value):
        return as_written(value)
    if isinstance(value, dict):
        return {name: as_written(item) if dataclasses.is_dataclass(item) else item for name, item in value.items()}
    if isinstance(value, tuple):
        return [as_written(item) if dataclasses.is_dataclass(item) else item for item in value]
    return value
