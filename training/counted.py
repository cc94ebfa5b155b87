"""A count with its noun: '1 rank', '4 ranks', '1,024 images'."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice


def counted(count: int, noun: str) -> str:
    """The count and the noun; the noun gets s or es (epochs, switches) unless the count is 1."""
    plural = noun + ("es" if noun.endswith("ch") and noun != "epoch" else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def all_of(count: int, noun: str) -> str:
    """'all 4 ranks', or 'the rank' for a count of 1."""
    return f"all {counted(count, noun)}" if count > 1 else f"the {noun}"


def first_of(words: Collection[str], most: int = 8) -> str:
    """The first words, separated by commas, and the count of the others: 'n1, n2 and 998 more'."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(islice(words, most)) + more
