"""The changes of a run to the published recipe that it names."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A value of a recipe that a run changes, as text, and the rule."""

    key: str
    published: str
    now: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.now}, published {self.published} ({self.reason})"
