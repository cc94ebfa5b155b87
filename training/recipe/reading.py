"""JSON into frozen dataclasses, strictly: every key present, no key unknown, every value within its limits."""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from torusrun.training.recipe.key import Constraint, Limits, Pattern

T = TypeVar("T")
WORDS: dict[Any, str] = {
    int: "an integer", bool: "a boolean", float: "a number", str: "a string", Path: "a path",
    tuple[int, ...]: "a list of integers", str | None: "a string or null",
}  # fmt: skip


class ConfigError(ValueError):
    """The config cannot be used; the message is one line and names the key."""


def record(cls: type[T], document: object, where: str = "") -> T:
    """`document` as a `cls`; `where` is its dotted key in the config. Raises ConfigError."""
    if not isinstance(document, dict):
        raise ConfigError(f"{where or 'the config'} must be an object, not {_json_type(document)}")
    names = [each.name for each in fields(cls)]  # type: ignore[arg-type]
    at = f"{where}." if where else ""
    for key in document:
        if key not in names:
            raise ConfigError(f"unknown key {at}{key}; known are {', '.join(names)}")
    for name in names:
        if name not in document:
            raise ConfigError(f"key {at}{name} is missing")
    hints = get_type_hints(cls, include_extras=True)
    return cls(**{name: _value(hints[name], document[name], at + name) for name in names})


def number(key: str, value: object, limits: Limits) -> float:
    """The value at `key`, which must be a number within `limits`. Raises ConfigError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{key} must be a number, not {value!r}")
    if complaint := limits.complaint(value):
        raise ConfigError(f"{key} {complaint}, not {value}")
    return value


def _json_type(document: object) -> str:
    """The type of the document, without its content: it may hold the token."""
    return {list: "a list", str: "a string", type(None): "null", bool: "a boolean"}.get(type(document), "a number")


def _value(hint: Any, value: Any, key: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _constrained(args[0], args[1], value, key)
    if origin is Literal:
        if value in args:
            return value
        raise ConfigError(f"{key} must be one of {', '.join(args)}, not {value!r}")
    if origin is dict:
        return _table(args, value, key)
    if origin is tuple and hint not in WORDS:
        return _items(args, value, key)
    if isinstance(hint, type) and is_dataclass(hint):
        return record(hint, value, key)
    if type(None) in args and hint not in WORDS:
        return None if value is None else _value(args[0], value, key)
    if _fits(hint, value):
        return _converted(hint, value)
    wanted = WORDS.get(hint, "a string, a number, a boolean or a list of numbers")
    raise ConfigError(f"{key} must be {wanted}, not {value!r}")


def _constrained(base: Any, constraint: Constraint, value: Any, key: str) -> Any:
    if isinstance(constraint, Pattern) and constraint.secret:
        if not isinstance(value, str) or constraint.complaint(value):
            raise ConfigError(f"{key} must be {constraint.means}; it is a secret and not shown here")
        return value
    converted = _value(base, value, key)
    if complaint := constraint.complaint(converted):
        raise ConfigError(f"{key} {complaint}, not {value!r}")
    return converted


def _table(args: tuple[Any, ...], value: Any, key: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{key} must be an object, not {_json_type(value)}")
    return {
        _value(args[0], name, f"{key}: the key"): _value(args[1], held, f"{key}.{name}") for name, held in value.items()
    }


def _items(args: tuple[Any, ...], value: Any, key: str) -> tuple[Any, ...]:
    """A list of any length if `args` ends with an ellipsis, else with as many items as `args`."""
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{key} must be a list, not {_json_type(value)}")
    if args[-1] is not ... and len(value) != len(args):
        raise ConfigError(f"{key} must have {len(args)} values, not {len(value)}")
    return tuple(_value(args[0], item, f"{key}[{i}]") for i, item in enumerate(value))


def _fits(hint: Any, value: Any) -> bool:
    """Whether a JSON value has this type; true is not an integer, but an integer is a number."""
    if get_origin(hint) in (types.UnionType, typing.Union):
        return any(_fits(kind, value) for kind in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, (list, tuple)) and all(_fits(get_args(hint)[0], item) for item in value)
    if hint is Path:
        return isinstance(value, str) and value != ""
    return type(value) is hint or (hint is float and type(value) is int)


def _converted(hint: Any, value: Any) -> Any:
    if hint in (float, Path):
        return hint(value)
    return tuple(value) if isinstance(value, list) else value
