"""Suggests the valid word in place of a misspelt word, for all of torusrun."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

MOST_EDITS = 3
LETTERS_PER_EDIT = 3  # one edit of a word of 3 to 5 letters, two of 6 to 8, three of more
LONGEST = 100  # letters; longer words are not compared


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """'; did you mean X?' for the valid word nearest to `word`, or nothing if none is near."""
    near = nearest(word, valid)
    return f"; did you mean {near!r}?" if near else ""


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word with the fewest edits from `word`, or the first that continues it after a '-', '_' or '.'."""
    compared = [(edits(word.lower(), each.lower()), each) for each in valid if _may_be_near(word, each)]
    near = [(count, each) for count, each in compared if count <= _limit(word, each) or _continues(word, each)]
    return min(near, key=lambda pair: (pair[0], edits(word, pair[1])))[1] if near else None


def _may_be_near(word: str, other: str) -> bool:
    if word == other or len(word) > LONGEST or len(other) > LONGEST:
        return False
    return abs(len(word) - len(other)) <= MOST_EDITS or _continues(word, other)


def _limit(word: str, other: str) -> int:
    return min(MOST_EDITS, max(len(word), len(other)) // LETTERS_PER_EDIT)


def _continues(word: str, other: str) -> bool:
    return len(word) >= LETTERS_PER_EDIT and other.lower().startswith(tuple(f"{word.lower()}{mark}" for mark in "-_."))


def edits(word: str, other: str) -> int:
    """The number of letters to insert, remove, replace or swap with the next (optimal string alignment)."""
    before, row = list[int](), list(range(len(other) + 1))
    for i, (last, letter) in enumerate(pairwise(f"\0{word}"), 1):
        older, before, row = before, row, [i]
        for j, (other_last, other_letter) in enumerate(pairwise(f"\0{other}"), 1):
            least = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other_last and last == other_letter:
                least = min(least, older[j - 2] + 1)
            row.append(least)
    return row[-1]
