"""What the other side sends, read strictly: JSON becomes a value of the type that is expected, or an error in words."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin

from orchestrator.base.json_files import parsed
from orchestrator.base.terminal.plain import plain
from orchestrator.remote.links.host import BadAnswer, LoginHost

LARGEST_NUMBER = 1e18
LARGEST_TIME_S = 1e11  # the year 5138, which every calendar has
MOST_PARTS = 1_000_000  # lists and objects in an answer
LONGEST_WHY = 200  # characters of what is wrong with an answer

Kind = TypeVar("Kind")
_hints = functools.cache(typing.get_type_hints)


def received(host: LoginHost, kind: type[Kind], sent: Any, text: Callable[[str], str] = plain) -> Kind:
    """A value out of what a login node sent: JSON, as it came or as `record_of` takes it. Raises BadAnswer."""
    try:
        found: Kind = record_of(kind, _value(sent) if isinstance(sent, (bytes, bytearray)) else sent, text)
    except ValueError as error:
        why = plain(str(error))[:LONGEST_WHY]
        raise BadAnswer(f"{host.address}: its answer is not what torusrun sends: {why}") from None
    return found


def _value(content: bytes | bytearray) -> Any:
    """The value of this JSON. Raises ValueError, also if it would take many times as much memory as bytes."""
    if content.count(b"[") + content.count(b"{") > MOST_PARTS:
        raise ValueError("it has too many parts")
    return parsed(bytes(content))


def record_of(hint: Any, value: Any, text: Callable[[str], str] = plain, name: str = "it") -> Any:
    """A value of the type `hint`, which `dataclasses.asdict` and JSON made `value` of.

    `text` is applied to every string; by default it makes one line that a terminal may show. Keys that are not known
    are left out. Raises ValueError, in words, for a value of another type or a number that cannot be.
    """
    kind, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if kind in (types.UnionType, typing.Union):
        (wanted,) = (part for part in parts if part is not types.NoneType)
        return None if value is None else record_of(wanted, value, text, name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint(**_fields(hint, _checked(value, dict, name), text))
    if kind is tuple and parts[-1] is not Ellipsis:
        if len(_checked(value, list, name)) != len(parts):
            raise ValueError(f"{name!r} has {len(value)} entries, not {len(parts)}")
        return tuple(record_of(part, item, text, name) for part, item in zip(parts, value, strict=True))
    if kind in (tuple, Sequence):
        return tuple(record_of(parts[0], item, text, name) for item in _checked(value, list, name))
    if kind is Mapping:
        entries = _checked(value, dict, name).items()
        return {text(key): record_of(parts[1], item, text, name) for key, item in entries}
    if issubclass(hint, Enum):
        return hint(_checked(value, str, name))
    if hint in (int, float):
        return _number(hint, value, name)
    return text(_checked(value, str, name)) if hint is str else _checked(value, hint, name)


def _fields(record: Any, value: dict[str, Any], text: Callable[[str], str]) -> dict[str, Any]:
    hints, found = _hints(record), {}
    for field in dataclasses.fields(record):
        if field.name in value:
            found[field.name] = record_of(hints[field.name], value[field.name], text, field.name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{field.name!r} is missing")
    return found


def _checked(value: Any, kind: type[Kind], name: str) -> Kind:
    if type(value) is not kind:
        raise ValueError(f"{name!r} is of type {type(value).__name__}, not {kind.__name__}")
    return value


def _number(kind: type[Any], value: Any, name: str) -> Any:
    """A number of this type; a bool is none, and a whole number is a float too. A name that ends in _s is a time."""
    if kind is int or type(value) is not int:
        _checked(value, kind, name)
    is_time = name.endswith("_s") and not name.endswith("_per_s")
    if not abs(value) < (LARGEST_TIME_S if is_time else LARGEST_NUMBER):
        raise ValueError(f"{name!r} is {str(value)[:20]}, which cannot be")
    return kind(value)
