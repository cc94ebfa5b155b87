"""All recipes in one table."""

from __future__ import annotations

import textwrap
from typing import Any

from orchestrator.network.prediction.text import table
from orchestrator.report.recipes.marks import NO_BREAK, legend, weakest, with_mark
from training.recipe.files import Published, load, names

WIDTH = 79
COLUMNS = ("who", "time", "accuracy", "batch", "gpus")


def as_text() -> str:
    """The table, at most 80 columns wide, and what its marks mean."""
    head = ["recipe", "who", "time", "accuracy", "batch", "GPUs"]
    rows = [[name, *(_cell(load(name), column) for column in COLUMNS)] for name in names()]
    errata = [f"* {name}: {load(name).erratum}" for name in names() if load(name).erratum]
    notes = [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in errata]
    return "\n\n".join([table(head, rows), *notes, legend(), "more: torusrun recipes show NAME"]).replace(NO_BREAK, " ")


def as_json() -> dict[str, Any]:
    """The same, with sources."""
    return {"recipes": [{"name": name, "title": load(name).title, "published": facts(load(name))} for name in names()]}


def facts(recipe: Published) -> dict[str, Any]:
    """What was published of a record, each value with its mark."""
    return {key: {"value": fact.value, **fact.mark._asdict()} for key, fact in recipe.facts.items()}


def _cell(recipe: Published, column: str) -> str:
    fact = recipe.facts[column]
    star = "*" if column == "batch" and recipe.erratum else ""
    return with_mark(f"{fact.value}{star}", "" if column == "who" else weakest(fact.mark))
