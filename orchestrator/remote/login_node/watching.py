"""Runs that a session watches. A thread looks at them, so that a slow scheduler delays no answer.

News are an object with some of these keys:

    views     {number of the run: its view}, of runs that have changed; null for a run that does not exist
    detail    [number, details] of the wanted run
    rows      the table at the end of a run, if one is watched
    over      true once all runs are over
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, replace
from typing import Any

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.defect import report
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.screen.detail import Detail
from torusrun.orchestrator.show.screen.watched import WatchedHere

MOST_POINTS = 512  # of a curve; no terminal has more columns
DETAIL_S = 2.0
AGES = ("age_s", "eta_s", "last_step_age_s")  # values that change with time alone


class Watching:
    """Runs whose state a thread reads on request. The number of a run is its index in `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._looking: Future[dict[str, Any]] | None = None
        self._said: dict[int, dict[str, Any] | None] = {}  # the views of the last look
        self._detailed: list[Any] | None = None
        self._shown = -1
        self._due_s = self._detail_due_s = float("-inf")

    def news(self, wanted: int, wait_s: float) -> bytes:
        """The news since the last call; none if that takes more than `wait_s`. Raises SiteError if a look fails."""
        rest_s = self._due_s - time.monotonic()
        if not self._looking and wanted == self._shown and rest_s > 0:
            time.sleep(min(rest_s, wait_s))
            return b"{}"
        self._looking = self._looking or _started(functools.partial(self._look, wanted))
        if not wait([self._looking], wait_s).done:
            return b"{}"
        looked, self._looking = self._looking, None
        return json.dumps(looked.result()).encode()

    def _look(self, wanted: int) -> dict[str, Any]:
        try:
            if not self._said:
                self._begin()
            return self._news(wanted)
        except TorusrunError:
            raise
        except Exception as error:
            raise SiteError(report(error, ["watch"])) from None

    def _begin(self) -> None:
        os.environ.update(process.login_environment())  # it has the commands of the scheduler
        time.tzset()
        known = {run.run_id: run for run in index.runs()}
        self._there = [n for n, name in enumerate(self._names) if name in known]
        self._watched = WatchedHere([known[self._names[n]] for n in self._there])

    def _news(self, wanted: int) -> dict[str, Any]:
        views = dict(zip(self._there, self._watched.look(), strict=True))
        rows = {n: views[n].as_json() if n in views else None for n in range(len(self._names))}
        changed = {n: row for n, row in rows.items() if n not in self._said or _lasting(row) != _lasting(self._said[n])}
        self._said, over = rows, self._watched.over
        table = self._watched.rows(*views.values()) if changed and len(views) == 1 else None
        news = {"views": changed, "detail": self._detail(wanted, views), "rows": table, "over": over}
        self._due_s = float("inf") if over else time.monotonic() + self._watched.rest_s
        return {key: value for key, value in news.items() if value}

    def _detail(self, wanted: int, views: Mapping[int, View]) -> list[Any] | None:
        """The details of the wanted run, if they are due and new."""
        is_other, self._shown = wanted != self._shown, wanted
        if wanted not in views or not (is_other or time.monotonic() >= self._detail_due_s or self._watched.over):
            return None
        if is_other:
            self._details = self._watched.details(self._there.index(wanted))
        self._detail_due_s = time.monotonic() + DETAIL_S
        found = [wanted, asdict(_thinned(self._details.look(views[wanted])))]
        if found == self._detailed:
            return None
        self._detailed = found
        return found


def _started(look: Callable[[], dict[str, Any]]) -> Future[dict[str, Any]]:
    """The result to come of a look, in a thread that keeps no session from ending."""
    found: Future[dict[str, Any]] = Future()

    def run() -> None:
        try:
            found.set_result(look())
        except Exception as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found


watching = functools.lru_cache(1)(Watching)  # a session watches the same runs until its end


def _lasting(row: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (row or {}).items() if key not in AGES}


def _thinned(detail: Detail) -> Detail:
    """The details with so few points that they can be sent repeatedly."""
    step = len(detail.losses) // MOST_POINTS + 1
    return replace(detail, losses=detail.losses[::-1][::step][::-1])
