"""What a run file may name: the published recipes, with the marks of their values, and the data sets, as tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.keys.write import as_written
from torusrun.training.counted import counted
from torusrun.training.data.packed_file import SOURCES, Source, folder
from torusrun.training.recipe.files import CERTAINTIES, Mark, Published, load, names
from torusrun.training.recipe.train import Train
from torusrun.training.schedule import Course, Phase

NO_BREAK = "\u00a0"
ORDER = list(CERTAINTIES)


def weakest(*marks: Mark | None) -> str:
    """The letter of the least certain of these marks; '' without marks."""
    levels = [ORDER.index(mark.certainty) for mark in marks if mark]
    return ORDER[max(levels)][0] if levels else ""


def with_mark(text: str, letter: str) -> str:
    """The text with its letter, as '224 s v'; lines do not break at the space before the letter."""
    return f"{text}{NO_BREAK}{letter}" if letter else text


def legend() -> str:
    return "\n".join(f"{word[0]}  {word}: {means}" for word, means in CERTAINTIES.items())


WIDTH = 79
TITLES = {"who": "who", "time": "time", "accuracy": "accuracy", "batch": "batch", "gpus": "GPUs"}


def recipes() -> str:
    """The table, at most 80 columns wide, and the meaning of its marks."""
    table = recipe_table()
    errata = [f"* {recipe.name}: {recipe.erratum}" for recipe in table.rows if recipe.erratum]
    notes = [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in errata]
    parts = ["\n".join(table.lines()), *notes, legend(), "more: torusrun recipes show NAME"]
    return "\n\n".join(parts).replace(NO_BREAK, " ")


def facts(recipe: Published) -> dict[str, Any]:
    """The published facts of a record, each value with its mark."""
    return {key: {"value": fact.value, **fact.mark._asdict()} for key, fact in recipe.facts.items()}


def recipe_table() -> Table[Published]:
    """The published recipes, with the marks of their facts."""
    columns: list[Column[Published]] = [
        Column("recipe", lambda recipe: recipe.name, key="name"),
        Column(None, lambda recipe: recipe.title, key="title"),
        *(Column(title, partial(_cell, fact=fact)) for fact, title in TITLES.items()),
        Column(None, facts, key="published"),
    ]
    return Table(columns, [load(name) for name in names()])


def _cell(recipe: Published, fact: str) -> str:
    published = recipe.facts[fact]
    star = "*" if fact == "batch" and recipe.erratum else ""
    return with_mark(f"{published.value}{star}", "" if fact == "who" else weakest(published.mark))


TOP = {"batch": "batch", "size": "data.size", "weight_decay": "optimizer.weight_decay"}  # used if phases do not set it
ALWAYS = {"epochs", "learning rate"}


@dataclass(frozen=True)
class ShownRecipe:
    """A recipe as it was published."""

    recipe: Published

    @property
    def train(self) -> Train:
        return self.recipe.train

    @property
    def train_samples(self) -> int:
        return self.recipe.scale.epoch_samples

    @property
    def course(self) -> Course:
        return Course(self.train, self.train_samples)

    def as_json(self) -> dict[str, Any]:
        recipe = self.recipe
        marks = {key: mark._asdict() for key, _ in recipe.leaves() if (mark := recipe.mark(key))}
        return {
            "name": recipe.name,
            "title": recipe.title,
            "paper": recipe.paper,
            "erratum": recipe.erratum or None,
            "published": facts(recipe),
            "techniques": list(recipe.techniques),
            "left_out": list(recipe.left_out),
            "ranks": recipe.scale.ranks,
            "train_samples": self.train_samples,
            "train": as_written(self.train),
            "marks": marks,
        }

    def as_text(self) -> str:
        """The recipe as text, at most 80 columns wide."""
        recipe = self.recipe
        parts = [
            _wrapped(f"{recipe.name}: {recipe.title}") + "\n" + _wrapped(recipe.paper),
            "\n".join(self._facts()),
            f"{self._where()}\n{self._schedule()}",
            "\n".join(self._others()),
            _listed("techniques", recipe.techniques),
            _listed("not as published", recipe.left_out),
            legend(),
        ]
        return "\n\n".join(part for part in parts if part).replace(NO_BREAK, " ")

    def _facts(self) -> Iterator[str]:
        for key, fact in self.recipe.facts.items():
            note = f" ({fact.mark.note})" if fact.mark.note else ""
            yield _wrapped(f"{key:10}{with_mark(fact.value, weakest(fact.mark))}{note}", " " * 10)
        if self.recipe.erratum:
            yield _wrapped(f"{'erratum':10}{self.recipe.erratum}", " " * 10)

    def _where(self) -> str:
        ranks = counted(self.recipe.scale.ranks, "rank")
        return f"schedule, as published: {ranks}, {counted(self.train_samples, 'image')} in an epoch"

    def _schedule(self) -> str:
        """A column for each value that changes, then the constant values."""
        columns, phases = self._columns(), self.course.phases
        changing = [each for each in columns if each.title in ALWAYS or len(set(map(each.value, phases))) > 1]
        staying = [(each.title, each.value(phases[0])) for each in columns if each not in changing]
        words = ", ".join(f"{title} {value}" for title, value in staying if value)
        return "\n".join([*Table(changing, phases).lines(), *([_wrapped(f"in all: {words}")] if words else [])])

    def _columns(self) -> list[Column[Phase]]:
        return [
            Column("epochs", self._marked("until", lambda phase: f"{phase.start:.4g} - {phase.until:.4g}")),
            Column("batch", self._marked("batch", lambda phase: f"{phase.batch:,}")),
            Column("size", self._marked("size", lambda phase: f"{phase.view.size or 'own'}")),
            Column("learning rate", self._marked("lr", _rates)),
            Column("decay", self._marked("weight_decay", lambda phase: f"{phase.weight_decay:.3g}")),
            Column("also", lambda phase: ", ".join(_also(phase, self.train.phases[phase.number]))),
        ]

    def _marked(self, key: str, words: Callable[[Phase], str]) -> Callable[[Phase], str]:
        return lambda phase: with_mark(words(phase), self._mark(phase, key))

    def _mark(self, phase: Phase, key: str) -> str:
        """The letter of a value, from this phase, or from the last phase before it that sets the value."""
        written = self.recipe.written["phases"]
        for number in range(phase.number, -1, -1):
            if key in written[number]:
                path = f"phases[{number}].{key}"
                ends = range(len(written[number][key])) if isinstance(written[number][key], list) else ()
                marks = [self.recipe.mark(f"{path}[{end}]") for end in ends] or [self.recipe.mark(path)]
                return weakest(*marks)
        return weakest(self.recipe.mark(TOP[key]))

    def _others(self) -> Iterator[str]:
        """The values that are not in the table, in a line for each section."""
        for section, written in self.recipe.written.items():
            if section not in ("phases", "epochs", "batch"):
                values = ", ".join(filter(None, (self._other(key, name) for key, name in _named(written, section))))
                yield _wrapped(f"{section:16}{values}", " " * 16)

    def _other(self, key: str, name: str) -> str:
        """A value with its mark, as 'momentum 0.9 v', or '' if the training has no such value."""
        value = _at(as_written(self.train), key)
        return "" if value is None else f"{name} {with_mark(_word(value), weakest(self.recipe.mark(key)))}".strip()


def _rates(phase: Phase) -> str:
    """The rates at both ends of the phase, as '0 to 3.1'."""
    first, last = (phase.rate(epoch) for epoch in (phase.start, phase.until))
    if first is None or last is None:
        return "by the schedule"
    return f"{first:.3g}" if first == last else f"{first:.3g} to {last:.3g}"


def _also(phase: Phase, keys: Any) -> Iterator[str]:
    if phase.lr and len(phase.lr) > 1 and phase.power != 1:
        yield f"power {phase.power:g}"
    if keys.augment is False:
        yield "augment off"
    elif keys.area:
        low, high = (f"{area:.3g}" for area in keys.area)
        yield f"area {low}" if low == high else f"area {low}-{high}"
    if phase.view.rectangular:
        yield "rectangular test"
    if phase.collapse:
        yield "collapse"


def _named(written: Any, path: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The keys of all values of a recipe in a section, and their names within it."""
    if not isinstance(written, dict):
        yield path, prefix
        return
    for key, inner in written.items():
        name = "" if key in ("name", "options") else f"{prefix}.{key}" if prefix else key
        yield from _named(inner, f"{path}.{key}", name)


def _at(document: Any, key: str) -> Any:
    """The value of a dotted key, or None."""
    for part in key.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _word(value: Any) -> str:
    if isinstance(value, list):
        return f"{' to '.join(map(_word, value))}"
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float) else str(value)


def _listed(title: str, lines: tuple[str, ...] | list[str]) -> str:
    return "\n".join([title, *(_wrapped(f"  - {line}", " " * 4) for line in lines)]) if lines else ""


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def data_sets(into: Path | None = None) -> Table[Source]:
    """The table, for the packed files in a folder; default: the user's own."""
    place = into or folder()

    def file(source: Source) -> str | None:
        path = place / source.file
        return str(path) if path.is_file() else None

    def image(source: Source) -> str:
        channels, height, width = source.facts.shape
        return f"{height} x {width} {'grey' if channels == 1 else 'RGB'}"

    columns: Sequence[Column[Source]] = (
        Column("NAME", lambda source: source.name, key="name"),
        Column("TRAINING", lambda source: source.facts.train_samples, "{:,}".format, "train_samples"),
        Column("TEST", lambda source: source.facts.test_samples, "{:,}".format, "test_samples"),
        Column("CLASSES", lambda source: source.facts.classes, key="classes", left_out=1),
        Column("IMAGES", image, key="images", right=False, left_out=2),
        Column("FILE", lambda source: plain(file(source) or "not prepared"), right=False),
        Column(None, file, key="file"),
        Column(None, lambda source: source.package, key="package"),
        Column(None, lambda source: source.archive_sha256, key="archive_sha256"),
        Column(None, lambda source: source.content_sha256, key="content_sha256"),
        Column(None, lambda source: source.package_licence, key="package_licence"),
        Column(None, lambda source: source.data_terms, key="data_terms"),
    )
    return Table(columns, list(SOURCES.values()), lambda source: [f"  {line}" for line in terms(source)])


def terms(source: Source) -> list[str]:
    """The licences of the package and of the data."""
    return [f"npm {source.package}: {source.package_licence}; the data: {source.data_terms}"]
