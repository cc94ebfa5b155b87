"""How sure a value of a recipe is, in one letter beside it."""

from __future__ import annotations

from training.recipe.files import CERTAINTIES, Mark

NO_BREAK = "\u00a0"
ORDER = list(CERTAINTIES)


def weakest(*marks: Mark | None) -> str:
    """The letter of the least sure of these marks; '' where there is none."""
    found = [ORDER.index(mark.certainty) for mark in marks if mark]
    return ORDER[max(found)][0] if found else ""


def with_mark(text: str, letter: str) -> str:
    """'224 s v', with a space before the letter at which no line breaks."""
    return f"{text}{NO_BREAK}{letter}" if letter else text


def legend() -> str:
    """What the letters mean."""
    return "\n".join(f"{word[0]}  {word}: {means}" for word, means in CERTAINTIES.items())
