"""What a run gives its ranks by their environment, with defaults outside of a run."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torusrun.training.checkpoint.interval import failure_of_ranks_s


@dataclass(frozen=True)
class Given:
    """The number of the attempt, and what else a script does not know by itself.

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
