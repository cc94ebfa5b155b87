"""Samples that could not be decoded: they are counted and named, and too many of them are an error.

The next good sample in the order of the files replaces a corrupt training sample. So the trained samples depend only on
the files, and not on the number of ranks. A corrupt test sample is left out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from torusrun.training.data.images.stored import Stored
from torusrun.training.recipe.reading import ConfigError

A_FEW = 10
SHOWN = 3


class Register:
    """The corrupt samples of one half that this rank has met; `lines` gets one for each. Several threads may use it."""

    def __init__(self, stored: Stored, share: float, lines: list[str]) -> None:
        self._stored, self._lines = stored, lines
        self._limit = max(int(share * len(stored)), A_FEW) if share else 0
        self._why: dict[int, str] = {}
        self._lock = threading.Lock()

    def candidates(self, sample: int) -> Iterator[int]:
        """The sample, and its possible replacements, without those that are known to be corrupt.

        Raises ConfigError if none is left, or too many are corrupt.
        """
        count = len(self._stored)
        for step in range(count):
            self._check()
            if (candidate := (sample + step) % count) not in self._why:
                yield candidate
        raise self._error(f"all {count}")

    def add(self, sample: int, why: str) -> None:
        """Record a corrupt sample. Raises ConfigError if there are too many."""
        with self._lock:
            if sample not in self._why:
                self._why[sample] = why
                self._lines.append(f"{self._stored.name(sample)}: {why}")
        self._check()

    def _check(self) -> None:
        if len(self._why) > self._limit:
            raise self._error(f"more than {self._limit} of {len(self._stored)}")

    def _error(self, count: str) -> ConfigError:
        first = "; ".join(f"{self._stored.name(each)} ({why})" for each, why in list(self._why.items())[:SHOWN])
        return ConfigError(
            f"train.data.options.max_corrupt: {count} images below {self._stored.root} cannot be decoded: {first}; "
            "copy these files again, delete them, or raise the key"
        )
