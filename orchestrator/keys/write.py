"""Specs as plain values, for the plan file in the run folder, and their JSON schema, for editors and other tools."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml

from torusrun.orchestrator.base.typed import hints_of
from torusrun.orchestrator.keys.kinds import Kind
from torusrun.orchestrator.keys.names import item_may_stand_alone, short_key
from torusrun.training.recipe.key import Constraint, described, key_of, may_be_left_out

CLOSED = {"additionalProperties": False}
NAMES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def as_written(record: Any) -> dict[str, Any]:
    """A spec as plain values under its YAML keys; `read` makes the same spec from it."""
    hints = hints_of(type(record))
    return {key_of(f): _plain(hints[f.name], getattr(record, f.name)) for f in dataclasses.fields(record)}


def _plain(hint: Any, value: Any) -> Any:
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


def schema(cls: type[Any], title: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a spec."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **_record(cls)}


def _record(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    properties, required, others = {}, [], {}
    for field in dataclasses.fields(cls):
        if field.metadata.get("others"):
            named, value = (_value(hint) for hint in get_args(hints[field.name]))
            others = {"propertyNames": named, "additionalProperties": {**value, "description": described(field)}}
            continue
        properties[key_of(field)] = {**_value(hints[field.name]), "description": described(field)}
        if not may_be_left_out(field):
            required.append(key_of(field))
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip(),
        "properties": properties,
        "required": required,
        **(others or CLOSED),
    }


def _value(hint: Any) -> dict[str, Any]:
    if hint is yaml.Node:  # any value
        return {}
    origin, args = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _union(args)
    if origin is Annotated:
        base, extra = args
        return {"type": "string", "pattern": extra.pattern} if isinstance(extra, Kind) else _limited(base, extra)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return _list(args)
    if origin is dict:
        return {"type": "object", "propertyNames": _value(args[0]), "additionalProperties": _value(args[1])}
    return _section(hint) if dataclasses.is_dataclass(hint) else {"type": NAMES[hint]}  # type: ignore[arg-type]


def _union(args: tuple[Any, ...]) -> dict[str, Any]:
    if type(None) in args:
        return {"anyOf": [_value(args[0]), {"type": "null"}]}
    if any(map(dataclasses.is_dataclass, args)):
        return {"anyOf": [_value(kind) for kind in args]}
    scalars = {"type": [NAMES[kind] for kind in args if kind in NAMES]}
    lists = [_value(kind) for kind in args if kind not in NAMES]
    return {"anyOf": [scalars, *lists]} if lists else scalars


def _list(items: tuple[Any, ...], limits: dict[str, Any] | None = None) -> dict[str, Any]:
    """The schema of `tuple[*items]`."""
    if items[-1] is not ...:
        limits = {"minItems": len(items), "maxItems": len(items)}
    item = _value(items[0])
    several = {"type": "array", "items": item, **(limits or {})}
    return {"anyOf": [several, item]} if item_may_stand_alone(items) else several


def _section(cls: type[Any]) -> dict[str, Any]:
    """A record, or only the value of its short key, if any."""
    record, short = _record(cls), short_key(cls)
    return {"anyOf": [record, record["properties"][short]]} if short else record


def _limited(base: Any, constraint: Constraint) -> dict[str, Any]:
    if get_origin(base) is tuple:
        return _list(get_args(base), constraint.schema())
    return {"type": NAMES[base], **constraint.schema()}
