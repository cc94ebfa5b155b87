"""The JSON schema of a spec, made from the same dataclasses that read it, for editors and other tools."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any, Literal, get_args, get_origin

from orchestrator.spec.kinds import Limits
from orchestrator.spec.read import key_of

NAMES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def schema(cls: type[Any], title: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a spec."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **_record(cls)}


def _record(cls: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    properties, required = {}, []
    for field in dataclasses.fields(cls):
        properties[key_of(field)] = {**_value(hints[field.name]), "description": field.metadata["help"]}
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(key_of(field))
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip(),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _value(hint: Any) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_value(args[0]), {"type": "null"}]}
    if origin is Annotated:
        return (
            _limited(args[0], args[1])
            if isinstance(args[1], Limits)
            else {"type": "string", "pattern": args[1].pattern}
        )
    if origin is Literal:
        return {"enum": list(args)}
    if origin is tuple:
        return {"type": "array", "items": _value(args[0])}
    if origin is dict:
        return {"type": "object", "propertyNames": _value(args[0]), "additionalProperties": _value(args[1])}
    return _record(hint) if dataclasses.is_dataclass(hint) else {"type": NAMES[hint]}  # type: ignore[arg-type]


def _limited(base: type[Any], limits: Limits) -> dict[str, Any]:
    keys = {"minimum": limits.at_least, "maximum": limits.at_most, "exclusiveMinimum": limits.above}
    return {"type": NAMES[base], **{k: v for k, v in keys.items() if v is not None}}
