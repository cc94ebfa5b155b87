"""What others wrote, read strictly: JSON becomes a value of a declared type, or there is an error in words."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

from orchestrator.base.terminal.plain import plain

LARGEST_NUMBER = 1e18
LARGEST_TIME_S = 1e11  # the year 5138, which every calendar has

Kind = TypeVar("Kind")
_hints = functools.cache(typing.get_type_hints)


def record_of(
    hint: Any, value: Any, text: Callable[[str], str] = plain, least: float = -LARGEST_NUMBER, name: str = "it"
) -> Any:
    """A value of the type `hint`, which `dataclasses.asdict` and JSON made `value` of.

    `text` is applied to every string; by default it makes one line that a terminal may show. No number is below
    `least`. Unknown keys are left out. Raises ValueError, in words, for a value of another type.
    """
    kind, parts, read = get_origin(hint), get_args(hint), functools.partial(record_of, text=text, least=least)
    if hint is Any:
        return value
    if kind in (types.UnionType, typing.Union):
        (wanted,) = (part for part in parts if part is not types.NoneType)
        return None if value is None else read(wanted, value, name=name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint(**_fields(hint, _checked(value, dict, name), read))
    if kind is tuple and parts[-1] is not Ellipsis:
        if len(_checked(value, list, name)) != len(parts):
            raise ValueError(f"{name!r} has {len(value)} entries, not {len(parts)}")
        return tuple(read(part, item, name=name) for part, item in zip(parts, value, strict=True))
    if kind in (tuple, Sequence):
        return tuple(read(parts[0], item, name=name) for item in _checked(value, list, name))
    if kind in (dict, Mapping):
        return {text(key): read(parts[1], item, name=name) for key, item in _checked(value, dict, name).items()}
    if issubclass(hint, Enum):
        return hint(_checked(value, str, name))
    if hint in (int, float):
        return _number(hint, value, least, name)
    return text(_checked(value, str, name)) if hint is str else _checked(value, hint, name)


def _fields(record: Any, value: dict[str, Any], read: Callable[..., Any]) -> dict[str, Any]:
    hints, found = _hints(record), {}
    for field in dataclasses.fields(record):
        if field.name in value:
            found[field.name] = read(hints[field.name], value[field.name], name=field.name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{field.name!r} is missing")
    return found


def _checked(value: Any, kind: type[Kind], name: str) -> Kind:
    if type(value) is not kind:
        raise ValueError(f"{name!r} is of type {type(value).__name__}, not {kind.__name__}")
    return value


def _number(kind: type[Any], value: Any, least: float, name: str) -> Any:
    """A number of this type; a bool is none, and a whole number is a float too. A name that ends in _s is a time."""
    if kind is int or type(value) is not int:
        _checked(value, kind, name)
    is_time = name.endswith("_s") and not name.endswith("_per_s")
    if not least <= value or not abs(value) < (LARGEST_TIME_S if is_time else LARGEST_NUMBER):
        raise ValueError(f"{name!r} is {str(value)[:20]}, which cannot be")
    return kind(value)
