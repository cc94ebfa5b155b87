"""Declares a key in a file: `momentum: Annotated[float, Limits(...)] = key(0.9, "of the velocity")`."""

from __future__ import annotations

from dataclasses import MISSING, Field, field
from typing import Any, TypeVar

T = TypeVar("T")


def key(
    default: T,
    help_: str,
    *,
    name: str = "",
    unit: str = "",
    source: str = "",
    short: bool = False,
    former: str = "",
    mistaken: tuple[str, ...] = (),
    others: bool = False,
) -> T:
    """A dataclass field with its `default`, meaning, `name` in a file if it has another, unit and published source.

    The value of a `short` key may be written in place of its whole section. `former` is its name in earlier files,
    `mistaken` are keys that users write for it. A field of `others` is a dict of all keys of its section that are not
    declared.
    """
    metadata = {
        "help": help_, "key": name, "unit": unit, "source": source, "short": short, "former": former,
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
