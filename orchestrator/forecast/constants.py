"""The shipped constants: every value with its source and how reliable it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.training.recipe.files import CERTAINTIES, Certainty

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Value:
    """A published number, or one derived from such a number."""

    value: float
    mark: Certainty
    source: str


@lru_cache
def table(name: str) -> dict[Any, Any]:
    """The shipped YAML file `name`."""
    import yaml

    loaded: dict[Any, Any] = yaml.safe_load((DATA / f"{name}.yaml").read_text(encoding="utf-8"))
    return loaded


def value(written: Any) -> Value:
    """[value, mark, source] as a Value. Raises ValueError for other input."""
    if not isinstance(written, list) or len(written) != 3 or written[1] not in CERTAINTIES or not written[2]:
        raise ValueError(f"{written!r} is not [value, {'|'.join(CERTAINTIES)}, source]")
    return Value(float(written[0]), written[1], str(written[2]))


def number(written: Any) -> float:
    return value(written).value


def entry(name: str, key: str, option: str) -> Any:
    """One entry of a table. Raises UserError with the known names and the option that chooses one."""
    entries = table(name)
    if key not in entries:
        raise UserError(f"{option} {key}: there is no such name; there are: {', '.join(map(str, entries))}")
    return entries[key]
