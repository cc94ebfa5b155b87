"""A data set or an optimizer of any kind, with all that a training asks of it."""

from __future__ import annotations

from types import MethodType
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Complete:
    """`own`, with the methods and values of its `protocol` for those that it lacks."""

    def __init__(self, own: object, protocol: Any) -> None:
        self._own, self._protocol = own, protocol

    def __getattr__(self, name: str) -> Any:
        if (own := getattr(self._own, name, None)) is not None:
            return own
        default = getattr(self._protocol, name)
        return MethodType(default, self) if callable(default) else default


def complete(own: T, protocol: Any) -> T:
    """`own` as a whole `protocol`, which has a default for each method and value that `own` lacks."""
    return cast(T, Complete(own, protocol))


def lacks(own: object, protocol: Any, name: str) -> bool:
    """Whether `own` does not have this method, or only the default of the `protocol`."""
    method = getattr(own, name, None)
    return method is None or getattr(method, "__func__", None) is getattr(protocol, name)
