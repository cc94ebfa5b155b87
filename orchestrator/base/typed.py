"""JSON read strictly into dataclasses: values of the expected types, or a plain error."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from torusrun.orchestrator.base.json_files import damaged, read_object
from torusrun.orchestrator.base.terminal.plain import plain

IT = "it"  # the name of a whole record in messages
LARGEST_NUMBER = 1e18
LARGEST_TIME_S = 1e11  # the year 5138, which every calendar supports

Kind = TypeVar("Kind")
# The types of the fields of a dataclass. Python computes them again for each call, which takes a millisecond.
hints_of: Callable[[Any], dict[str, Any]] = functools.cache(
    functools.partial(typing.get_type_hints, include_extras=True)
)


def read_record(path: Path, kind: type[Kind]) -> Kind | None:
    """The dataclass of this kind in `path`, or None if there is no such file. Raises SiteError if it is damaged."""
    kept = read_object(path)
    return None if kept is None else kept_record(path, kind, kept)


def kept_record(path: Path, kind: type[Kind], kept: Mapping[str, Any], /, **known: Any) -> Kind:
    """The record in the content of `path`, as `record_of` reads it, with fields that are already `known`.

    Raises SiteError if a field is missing or damaged.
    """
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name not in kept and field.name not in known:
            raise damaged(path, f"{field.name!r} is missing")
    try:
        return kind(**_fields(kind, {k: v for k, v in kept.items() if k not in known}, str, known))
    except ValueError as error:
        raise damaged(path, str(error)) from None


def record_of(hint: Any, value: Any, text: Callable[[str], str] = plain, name: str = IT) -> Any:
    """A value of the type `hint`, from the output of `dataclasses.asdict` and JSON.

    `text` is applied to every string; by default it makes one line that is safe on a terminal. Unknown keys are left
    out, and missing fields get their defaults. Raises ValueError with a plain message for a wrong type or an impossible
    number.
    """
    kind, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if kind is Annotated:
        inner = record_of(parts[0], value, text, name)
        if complaint := parts[1].complaint(inner):
            raise ValueError(f"{name!r} {complaint}")
        return inner
    if kind in (types.UnionType, typing.Union):
        (wanted,) = (part for part in parts if part is not types.NoneType)
        return None if value is None else record_of(wanted, value, text, name)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint(**_fields(hint, _checked(value, dict, name), text, {}, "" if name == IT else f"{name}."))
    if kind is tuple and parts[-1] is not Ellipsis:
        if len(_checked(value, list, name)) != len(parts):
            raise ValueError(f"{name!r} has {len(value)} entries, not {len(parts)}")
        return tuple(record_of(part, item, text, name) for part, item in zip(parts, value, strict=True))
    if kind in (tuple, Sequence):
        items = enumerate(_checked(value, list, name))
        return tuple(record_of(parts[0], item, text, f"{name}[{n}]") for n, item in items)
    if kind in (dict, Mapping):
        return {text(key): record_of(parts[1], item, text, name) for key, item in _checked(value, dict, name).items()}
    if issubclass(hint, Enum):
        return hint(_checked(value, str, name))
    if hint in (int, float):
        return _number(hint, value, name)
    return text(_checked(value, str, name)) if hint is str else _checked(value, hint, name)


def _fields(
    kind: Any, row: Mapping[str, Any], text: Callable[[str], str], known: Mapping[str, Any], of: str = ""
) -> dict[str, Any]:
    hints, values = hints_of(kind), dict(known)
    for field in dataclasses.fields(kind):
        if field.name in row:
            values[field.name] = record_of(hints[field.name], row[field.name], text, f"{of}{field.name}")
        elif field.name not in known and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{of + field.name!r} is missing")
    return values


def _checked(value: Any, kind: type[Kind], name: str) -> Kind:
    if type(value) is not kind:
        raise ValueError(f"{name!r} is of type {type(value).__name__}, not {kind.__name__}")
    return value


def _number(kind: type[Any], value: Any, name: str) -> Any:
    """A number of this type; a bool is refused, and an int is also a float. A name that ends in _s is a time."""
    if kind is int or type(value) is not int:
        _checked(value, kind, name)
    is_time = name.endswith("_s") and not name.endswith("_per_s")
    if not abs(value) < (LARGEST_TIME_S if is_time else LARGEST_NUMBER):
        raise ValueError(f"{name!r} is {str(value)[:20]}, which is not a possible value")
    return kind(value)
