"""The published recipes, each in a file of training/recipes/: its values, and for each its source and certainty."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from torusrun.training.recipe.names import RecipeName
from torusrun.training.recipe.reading import record
from torusrun.training.recipe.train import PhaseKeys, Train

FOLDER = Path(__file__).parents[1] / "recipes"
Certainty = Literal["verified", "secondary", "derived", "memory"]
CERTAINTIES: Mapping[str, str] = {
    "verified": "read in the source that is named",
    "secondary": "read in what others write about the source",
    "derived": "computed from values that are known",
    "memory": "from memory, not verified",
}


class Mark(NamedTuple):
    """The certainty and the source of a value; `note` may be empty."""

    certainty: Certainty
    source: str
    note: str = ""


class Fact(NamedTuple):
    """A published fact about a record, as text."""

    value: str
    mark: Mark


class Change(NamedTuple):
    """A value of a recipe that a run changes, as text, and the rule."""

    key: str
    published: str
    now: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.now}, published {self.published} ({self.reason})"


@dataclass(frozen=True)
class Scale:
    """The published scale of a recipe, and the rule by which its learning rate follows the batch."""

    ranks: int
    epoch_samples: int
    size: int
    rate: Literal["linear", "square-root"]


@dataclass(frozen=True)
class Published:
    """A recipe as published. `written` holds the keys of `train:` that it gives, `marks` their sources."""

    name: str
    title: str
    paper: str
    erratum: str
    facts: Mapping[str, Fact]
    scale: Scale
    techniques: tuple[str, ...]
    left_out: tuple[str, ...]
    sources: Mapping[str, str]
    written: Mapping[str, Any]
    marks: Mapping[str, Mark]

    @property
    def train(self) -> Train:
        """The training at the published scale, on the default data set."""
        return as_train({**self.written, "recipe": self.name})

    def mark(self, key: str) -> Mark | None:
        """The mark of a value: that of its key, else of its phase, of its section, then the same for all phases."""
        plain = re.sub(r"\[\d+\]", "", key)
        return next((self.marks[near] for near in [*_prefixes(key), *_prefixes(plain)] if near in self.marks), None)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every value that the recipe gives, with its dotted key."""
        yield from _leaves("", self.written)


def names() -> tuple[str, ...]:
    """The names of the recipes that are part of torusrun."""
    return get_args(RecipeName)


@cache
def load(name: str) -> Published:
    """The recipe with this name, one of `names()`."""
    import yaml  # imported here, because the ranks of a training read no recipe

    held = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    sources = held["sources"]
    facts = {key: Fact(value, _mark(mark, sources)) for key, (value, *mark) in held["published"].items()}
    return Published(
        name=name, title=held["title"], paper=held["paper"], erratum=held.get("erratum", ""), facts=facts,
        scale=Scale(**held["scaling"]), techniques=tuple(held["techniques"]), left_out=tuple(held["left_out"]),
        sources=sources, written=held["train"],
        marks={key: _mark(mark, sources) for key, mark in held["marks"].items()},
    )  # fmt: skip


def as_train(given: Mapping[str, Any]) -> Train:
    """A training with the given keys, and every other key at its default. Raises ConfigError."""
    document = merged(as_document(Train()), given)
    empty = as_document(PhaseKeys(until=1.0))
    document["phases"] = [{**empty, **_listed(phase)} for phase in document["phases"]]
    return record(Train, document, "train")


def as_document(held: Any) -> dict[str, Any]:
    """A record as a JSON document."""
    document: dict[str, Any] = json.loads(json.dumps(asdict(held)))
    return document


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the keys of `above` in place of its own; options are replaced as a whole."""
    result = dict(below)
    for key, value in above.items():
        section = key != "options" and isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if section else value
    return result


def _listed(phase: Mapping[str, Any]) -> dict[str, Any]:
    """The phase, with a single rate made a list."""
    rate = phase.get("lr")
    return {**phase, "lr": [rate]} if isinstance(rate, int | float) else dict(phase)


def _mark(written: list[str], sources: Mapping[str, str]) -> Mark:
    certainty, source, *note = written
    return Mark(certainty, sources[source], *note)  # type: ignore[arg-type]


def _prefixes(key: str) -> list[str]:
    """A key and its prefixes: 'phases[0].lr[1]', 'phases[0].lr', 'phases[0]', 'phases'."""
    prefixes = [key]
    while match := re.fullmatch(r"(.+?)(\[\d+\]|\.[^.\[\]]+)", prefixes[-1]):
        prefixes.append(match[1])
    return prefixes


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}" if key else name, inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(f"{key}[{index}]", inner)
    else:
        yield key, value
