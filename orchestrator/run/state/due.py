"""When waiting runs will begin and end: their schedulers' estimates, and the forecasts that the runs keep."""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import kept_forecast, metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import DEFAULT_TIMEOUT_S
from torusrun.orchestrator.run.state.record import TAIL_BYTES, Record, read_record
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import answers
from torusrun.orchestrator.schedulers.client import Client
from torusrun.training.reporting import events as rows_of


@dataclass(frozen=True)
class Due:
    """A waiting run: its estimated start (of time.time()), and the predicted time of the steps that are left.

    `left_s` is None if nothing was predicted. `attempts` is how many it takes by the time limit of its jobs, and the
    run is `done_s` if one is enough; else None.
    """

    starts_s: float
    left_s: float | None = None
    attempts: int | None = None

    @property
    def done_s(self) -> float | None:
        return self.starts_s + self.left_s if self.left_s is not None and self.attempts == 1 else None

    def as_json(self) -> dict[str, float | None]:
        return {"starts_s": self.starts_s, "left_s": self.left_s, "attempts": self.attempts, "done_s": self.done_s}


def due(views: Iterable[View], until_s: float = math.inf) -> Mapping[str, Due]:
    """The waiting ones of these runs, by their ids, that belong to this user and whose start is estimated.

    A start that has passed is now. The wait for all schedulers together ends at `until_s` (of time.monotonic()).
    """
    now_s = time.time()
    waiting: dict[str, list[Record]] = defaultdict(list)
    for view in views:
        if view.state is State.PENDING and view.job:
            record = read_record(RunFolder(Path(view.folder)))
            if record.mine and record.job and record.scheduler:
                waiting[record.scheduler].append(record)
    found = {}
    for name, records in waiting.items():
        timeout_s = max(record.plan.command_timeout_s if record.plan else DEFAULT_TIMEOUT_S for record in records)
        with contextlib.suppress(TorusrunError):  # a scheduler that this version does not know
            client = Client(schedulers.get(name), timeout_s, until_s=until_s)
            known = answers.starts(client, [record.job for record in records if record.job])
            for one in records:
                if one.job and one.job in known:
                    found[one.folder.run_id] = _due(one, max(known[one.job], now_s))
    return found


def _due(record: Record, starts_s: float) -> Due:
    kept, limit_s = kept_forecast.read(record.folder), record.plan.time_s if record.plan else None
    if kept is None:
        return Due(starts_s)
    rows = []
    with contextlib.suppress(TorusrunError):  # metrics that cannot be read
        rows = metrics.read(record.folder.metrics, TAIL_BYTES)
    step = (metrics.newest(rows, *rows_of.ALONG) or {}).get("step", 0)
    left_s = kept.total_s * max(1 - step / kept.steps, 0.0)
    before_s = record.plan.stop_before_s if record.plan else 0.0
    return Due(starts_s, left_s, attempts_for(left_s, limit_s, before_s) if limit_s else None)


def attempts_for(work_s: float, limit_s: float, stop_before_s: float = 0.0) -> int:
    """The attempts one after the other for `work_s` of training; each must stop `stop_before_s` before its limit.

    The time from the start of an attempt to its first step is not known, and left out.
    """
    usable_s = limit_s - stop_before_s
    return max(math.ceil(work_s / usable_s), 1) if usable_s > 0 else 1
