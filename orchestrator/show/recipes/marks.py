"""How certain a value of a recipe is, as one letter after it."""

from __future__ import annotations

from torusrun.training.recipe.files import CERTAINTIES, Mark

NO_BREAK = "\u00a0"
ORDER = list(CERTAINTIES)


def weakest(*marks: Mark | None) -> str:
    """The letter of the least certain of these marks; '' without marks."""
    found = [ORDER.index(mark.certainty) for mark in marks if mark]
    return ORDER[max(found)][0] if found else ""


def with_mark(text: str, letter: str) -> str:
    """The text with its letter, as '224 s v'; lines do not break at the space before the letter."""
    return f"{text}{NO_BREAK}{letter}" if letter else text


def legend() -> str:
    return "\n".join(f"{word[0]}  {word}: {means}" for word, means in CERTAINTIES.items())
