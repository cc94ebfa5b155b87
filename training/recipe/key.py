"""Declares a key in a file: `momentum: Annotated[float, Limits(...)] = key(0.9, "of the velocity")`.

A constraint, such as `Limits(at_least=0)`, explains an invalid value (`complaint`) and describes itself in JSON schema
(`schema`).
"""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


def key(
    default: T,
    help_: str,
    *,
    name: str = "",
    unit: str = "",
    source: str = "",
    short: bool = False,
    mistaken: tuple[str, ...] = (),
    others: bool = False,
) -> T:
    """A dataclass field with its `default`, meaning, `name` in a file if it has another, unit and published source.

    The value of a `short` key may be written in place of its whole section. `mistaken` are keys that users write for
    it. A field of `others` is a dict of all keys of its section that are not declared.
    """
    metadata = {
        "help": help_, "key": name, "unit": unit, "source": source, "short": short,
        "mistaken": mistaken, "others": others,
    }  # fmt: skip
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)  # type: ignore[return-value]
    return field(default=default, metadata=metadata)


def needed(help_: str, *, name: str = "", unit: str = "") -> Any:
    """A dataclass field without a default."""
    return field(metadata={"help": help_, "key": name, "unit": unit})


def key_of(declared: Field[Any]) -> str:
    """The key of a field in a user's file: `time` for `time_s`."""
    return str(declared.metadata.get("key") or declared.name)


def described(declared: Field[Any]) -> str:
    """The meaning of a field, in one line."""
    unit, source = declared.metadata.get("unit"), declared.metadata.get("source")
    return "".join([str(declared.metadata["help"]), f", in {unit}" if unit else "", f" ({source})" if source else ""])


def may_be_left_out(declared: Field[Any]) -> bool:
    """Whether a field has a default."""
    return declared.default is not MISSING or declared.default_factory is not MISSING


@runtime_checkable
class Constraint(Protocol):
    """A constraint after the type in `Annotated`."""

    def complaint(self, value: Any) -> str | None:
        """The error of an invalid `value` ('must be above 0'), or None."""

    def schema(self) -> dict[str, Any]:
        """The constraint as JSON schema, without the type."""


@dataclass(frozen=True)
class Limits:
    """The range of a number. Both ends are valid, except the low end if `above` gives it."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None

    def complaint(self, value: float) -> str | None:
        if self.above is not None and not value > self.above:
            return f"must be above {self.above:.15g}"
        if self.at_least is not None and not value >= self.at_least:
            return f"must be at least {self.at_least:.15g}"
        if self.at_most is not None and not value <= self.at_most:
            return f"must be at most {self.at_most:.15g}"
        return None

    def schema(self) -> dict[str, Any]:
        keys = {"minimum": self.at_least, "maximum": self.at_most, "exclusiveMinimum": self.above}
        return {key: value for key, value in keys.items() if value is not None}

    def checked(self, value: float, unit: str) -> float:
        """`value`, unchanged. Raises ValueError, with `unit`, if it is beyond the limits."""
        if complaint := self.complaint(value):
            raise ValueError(f"{complaint} {unit}")
        return value


@dataclass(frozen=True)
class Items:
    """The number of values in a list."""

    at_least: int
    at_most: int

    def complaint(self, value: tuple[Any, ...]) -> str | None:
        if self.at_least <= len(value) <= self.at_most:
            return None
        return f"must have {self.at_least} to {self.at_most} values"

    def schema(self) -> dict[str, Any]:
        return {"minItems": self.at_least, "maxItems": self.at_most}


@dataclass(frozen=True)
class Pattern:
    """Text that matches the whole `pattern`; `means` describes it. No message shows a `secret`."""

    means: str
    pattern: str
    secret: bool = False

    def complaint(self, value: str) -> str | None:
        return None if re.fullmatch(self.pattern, value) else f"must be {self.means}"

    def schema(self) -> dict[str, Any]:
        return {"pattern": f"^{self.pattern}$"}
