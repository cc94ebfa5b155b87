"""What a run gives its ranks by their environment, with defaults outside of a run; the file that shows progress."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torusrun.training.checkpoint.interval import failure_of_ranks_s
from torusrun.training.reporting.heartbeat import AGAIN_S


@dataclass(frozen=True)
class Given:
    """The number of the attempt, and other facts that a script does not know by itself.

    `checkpoints`, `heartbeat` and `metrics` are None outside of a run. `kept` are open files that a process keeps as
    long as the end of the attempt must wait for it.
    """

    checkpoints: Path | None
    attempt: int
    mean_time_to_failure_s: float
    heartbeat: Path | None
    metrics: Path | None
    stop_signal: signal.Signals
    kept: tuple[int, ...]

    @classmethod
    def by(cls, environment: Mapping[str, str], ranks: int) -> Given:
        """From the variables of docs/guides/programs.md."""
        return cls(
            _path(environment.get("TORUSRUN_CHECKPOINTS")),
            int(environment.get("TORUSRUN_ATTEMPT", "1")),
            float(environment.get("TORUSRUN_MEAN_TIME_TO_FAILURE_S", failure_of_ranks_s(ranks))),
            _path(environment.get("TORUSRUN_HEARTBEAT")),
            _path(environment.get("TORUSRUN_METRICS")),
            signal.Signals[environment.get("TORUSRUN_STOP_SIGNAL", "SIGTERM")],
            tuple(still_open(environment.get("TORUSRUN_KEEP", ""))),
        )


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None


def still_open(numbers: str) -> Iterator[int]:
    """The locks and pipes among these descriptors. A launcher in between may have closed them, and others follow."""
    for number in map(int, filter(None, numbers.split(","))):
        with suppress(OSError):
            mode = os.fstat(number).st_mode
            if os.get_inheritable(number) and (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                yield number


class HeartbeatFile:
    """The file by which rank 0 shows that it makes progress (docs/guides/hangs.md); nothing without a `path`.

    It gets each new activity at once, and the newest step every AGAIN_S.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._due_s = path, 0.0

    def step(self, number: int) -> None:
        if (now_s := time.monotonic()) >= self._due_s:
            self._due_s = now_s + AGAIN_S
            self._write(str(number))

    def begins(self, activity: str) -> None:
        self._due_s = 0.0
        self._write(activity)

    def _write(self, word: str) -> None:
        if self._path:
            with suppress(OSError):  # a full disk costs no training
                self._path.write_text(word)
