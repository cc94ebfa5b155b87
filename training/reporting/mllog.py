"""Lines in the format of MLPerf's logs (mlperf_logging 1.x): `:::MLLOG {"namespace": ..., "time_ms": ..., ...}`.

Times are those of the host. On a GPU an epoch ends when its last step is queued. An evaluation waits for the device, so
run_stop and eval_stop are true.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

from torusrun.training.recipe.train import Train
from torusrun.training.schedule import Course

PREFIX = ":::MLLOG "


class MLLog:
    """Prints the lines, if `active`."""

    def __init__(self, active: bool) -> None:
        self._active = active

    def event(self, key: str, value: Any = None, **metadata: Any) -> None:
        """Print a value, such as a hyper-parameter."""
        self._print("POINT_IN_TIME", key, value, metadata)

    def start(self, key: str, **metadata: Any) -> None:
        """Print a begin: `key` ends with _start."""
        self._print("INTERVAL_START", key, None, metadata)

    def stop(self, key: str, **metadata: Any) -> None:
        """Print an end: `key` ends with _stop."""
        self._print("INTERVAL_END", key, None, metadata)

    def _print(self, kind: str, key: str, value: Any, metadata: dict[str, Any]) -> None:
        if self._active:
            line = {
                "namespace": "",
                "time_ms": int(time.time() * 1000),
                "event_type": kind,
                "key": key,
                "value": None if isinstance(value, float) and not math.isfinite(value) else value,  # JSON has no NaN
                "metadata": metadata,
            }
            print(f"{PREFIX}{json.dumps(line)}\n", end="", flush=True)  # in one write


def hyper_parameters(train: Train, course: Course, test_samples: int) -> Iterator[tuple[str, Any]]:
    """The values to print at the start, under MLPerf's keys; those of LARS have a name of their own."""
    keys, lars = train.optimizer, train.optimizer.name == "lars"
    of = "lars_opt" if lars else "opt"
    highest, end, warmup_epochs = _rates(train, course)
    yield "global_batch_size", course.phases[0].batch
    yield "gradient_accumulation_steps", train.accumulate
    yield "train_samples", course.total_samples // train.epochs
    yield "eval_samples", test_samples
    yield "seed", train.seed
    yield "opt_name", keys.name
    yield f"{of}_base_learning_rate", highest
    yield f"{of}_end_learning_rate", end
    yield f"{of}_learning_rate_warmup_epochs", warmup_epochs
    yield f"{of}_weight_decay", course.phases[0].weight_decay
    yield f"{of}_momentum" if lars else "sgd_opt_momentum", keys.momentum
    if lars:
        yield "lars_epsilon", keys.lars.eps


def _rates(train: Train, course: Course) -> tuple[float, float, float]:
    """The highest rate, that at the end, and the epochs of the warm-up: from the phases if they have rates."""
    first, last, keys = course.phases[0], course.phases[-1], train.schedule
    if not first.lr or not last.lr:
        return train.optimizer.lr, keys.end_lr, keys.warmup_epochs
    highest = max(rate for phase in course.phases for rate in phase.lr or ())
    warmup_epochs = first.until if first.lr[0] < first.lr[-1] else 0.0
    return highest, last.rate(last.until) or 0.0, warmup_epochs
