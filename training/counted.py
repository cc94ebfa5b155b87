"""A count with its noun: '1 rank', '4 ranks', '1,024 images'."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The count and the noun; the noun gets s or es (epochs, switches) unless the count is 1."""
    plural = noun + ("es" if noun.endswith("ch") and noun != "epoch" else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def all_of(count: int, noun: str) -> str:
    """'all 4 ranks', or 'the rank' if it is the only one."""
    return f"all {counted(count, noun)}" if count > 1 else f"the {noun}"
