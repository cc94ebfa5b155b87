"""All recipes in one table."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import Any

from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.show.recipes.marks import NO_BREAK, legend, weakest, with_mark
from torusrun.training.recipe.files import Published, load, names

WIDTH = 79
TITLES = {"who": "who", "time": "time", "accuracy": "accuracy", "batch": "batch", "gpus": "GPUs"}


def as_text() -> str:
    """The table, at most 80 columns wide, and the meaning of its marks."""
    table = _table()
    errata = [f"* {recipe.name}: {recipe.erratum}" for recipe in table.rows if recipe.erratum]
    notes = [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in errata]
    parts = ["\n".join(table.lines()), *notes, legend(), "more: torusrun recipes show NAME"]
    return "\n\n".join(parts).replace(NO_BREAK, " ")


def as_json() -> dict[str, Any]:
    return {"recipes": _table().as_json()}


def facts(recipe: Published) -> dict[str, Any]:
    """The published facts of a record, each value with its mark."""
    return {key: {"value": fact.value, **fact.mark._asdict()} for key, fact in recipe.facts.items()}


def _table() -> Table[Published]:
    columns: list[Column[Published]] = [
        Column("recipe", lambda recipe: recipe.name, key="name"),
        Column(None, lambda recipe: recipe.title, key="title"),
        *(Column(title, partial(_cell, fact=fact)) for fact, title in TITLES.items()),
        Column(None, facts, key="published"),
    ]
    return Table(columns, [load(name) for name in names()])


def _cell(recipe: Published, fact: str) -> str:
    found = recipe.facts[fact]
    star = "*" if fact == "batch" and recipe.erratum else ""
    return with_mark(f"{found.value}{star}", "" if fact == "who" else weakest(found.mark))
