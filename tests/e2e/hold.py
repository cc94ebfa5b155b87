"""A hold: a rank of the first attempts waits in it until its test has struck, however late the test is.

Places put this file into the code of a run. Place.release() ends the hold of one attempt.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN = Path(__file__).parents[1]  # of the copy that the run has of its code


def wait(ends: Callable[[], object] = lambda: False, attempts: int = 1) -> None:
    """Wait, in the first `attempts`, until the attempt is released or `ends()` is true."""
    attempt = int(os.environ["TORUSRUN_ATTEMPT"])
    released = RUN / f"attempts/{attempt}/released"
    while attempt <= attempts and not released.exists() and not ends():
        time.sleep(0.02)


def digits(*, seed: int, epoch: int, attempts: int = 1) -> Held:
    """The digits as a data set that holds rank 0 when it begins `epoch`, counted from 0."""
    from torusrun.training.data.named import build_digits

    return Held(build_digits(seed=seed), epoch, attempts)


class Held:
    """A data set whose training does not end before the attempt is released or asked to stop."""

    def __init__(self, data: Any, epoch: int, attempts: int) -> None:
        self._data, self._epoch = data, epoch
        self._attempts = attempts if os.environ["RANK"] == "0" else 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)

    def train_batch(self, samples: list[tuple[int, int]]) -> Any:
        if samples[0][0] >= self._epoch:
            wait(_asked_to_stop, self._attempts)
        return self._data.train_batch(samples)


def _asked_to_stop() -> bool:
    """Whether the training has noted SIGTERM: its handler is a method of the record of that."""
    note = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(note, "requested", False))
