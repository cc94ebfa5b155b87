"""Records out of the JSON that the other side makes of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from orchestrator.private import plain


def record_of(hint: Any, value: Any) -> Any:
    """A value of the type `hint`, which `dataclasses.asdict` and JSON made `value` of; text as a terminal may show it.

    Raises TypeError, KeyError or ValueError for what is none.
    """
    kind = get_origin(hint)
    if kind in (types.UnionType, typing.Union):
        (wanted,) = (part for part in get_args(hint) if part is not types.NoneType)
        return None if value is None else record_of(wanted, value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: record_of(hints[f.name], value[f.name]) for f in dataclasses.fields(hint)})
    if kind is tuple and get_args(hint)[-1] is not Ellipsis:
        return tuple(record_of(part, item) for part, item in zip(get_args(hint), value, strict=True))
    if kind in (tuple, list, Sequence):
        return tuple(record_of(get_args(hint)[0], item) for item in value)
    if kind in (dict, Mapping):
        return {key: record_of(get_args(hint)[1], item) for key, item in value.items()}
    return plain(value) if isinstance(value, str) else value
