"""Runs that a session watches. A thread looks at them, and keeps their news until the next question.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from orchestrator.base import process
from orchestrator.base.defect import report
from orchestrator.base.errors import SiteError, TorusrunError
from orchestrator.report.screen.detail import Detail
from orchestrator.report.screen.watched import WatchedHere
from orchestrator.runs.folder import index
from orchestrator.runs.state.view import View

MOST_POINTS = 512  # of a curve; no terminal has more columns
DETAIL_S = 2.0
AGES = ("age_s", "eta_s", "last_step_age_s")  # values that change with time alone


class Watching:
    """A thread that looks at runs. The number of a run is its index in `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._lock = names, threading.Condition()
        self._news: dict[str, Any] = {}
        self._said: dict[int, dict[str, Any] | None] = {}  # the views of the last look
        self._wanted = self._shown = -1
        self._due_s = float("-inf")
        self._error: TorusrunError | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def news(self, wanted: int, wait_s: float) -> bytes:
        """The news since the last call. Waits a moment for some. Raises the error that ended the watching."""
        with self._lock:
            self._wanted = wanted
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._news or self._error, wait_s)
            news, self._news = self._news, {}
        if self._error:
            raise self._error
        return json.dumps(news).encode()

    def _watch(self) -> None:
        try:
            os.environ.update(process.login_environment())  # it has the commands of the scheduler
            time.tzset()
            self._follow()
        except TorusrunError as error:
            self._error = error
        except Exception as error:
            self._error = SiteError(report(error, ["watch"]))

    def _follow(self) -> None:
        known = {run.run_id: run for run in index.runs()}
        self._there = [n for n, name in enumerate(self._names) if name in known]
        self._watched = WatchedHere([known[self._names[n]] for n in self._there])
        while True:
            self._look()
            if self._watched.over:
                return
            with self._lock:
                self._lock.wait_for(lambda: self._wanted != self._shown, self._watched.rest_s)

    def _look(self) -> None:
        views = dict(zip(self._there, self._watched.look(), strict=True))
        rows = {n: views[n].as_json() if n in views else None for n in range(len(self._names))}
        changed = {n: row for n, row in rows.items() if n not in self._said or _lasting(row) != _lasting(self._said[n])}
        self._said = rows
        table = self._watched.rows(*views.values()) if changed and len(views) == 1 else None
        new: dict[str, Any] = {"detail": self._detail(views), "rows": table, "over": self._watched.over}
        with self._lock:
            new["views"] = {**self._news.get("views", {}), **changed}
            self._news.update({key: value for key, value in new.items() if value})
            self._lock.notify_all()

    def _detail(self, views: Mapping[int, View]) -> list[Any] | None:
        """The details of the wanted run, if they are due."""
        wanted, is_other, self._shown = self._wanted, self._wanted != self._shown, self._wanted
        if wanted not in views or not (is_other or time.monotonic() >= self._due_s or self._watched.over):
            return None
        if is_other:
            self._details = self._watched.details(self._there.index(wanted))
        self._due_s = time.monotonic() + DETAIL_S
        return [wanted, asdict(_thinned(self._details.look(views[wanted])))]


watching = functools.lru_cache(1)(Watching)  # a session watches the same runs until its end


def _lasting(row: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (row or {}).items() if key not in AGES}


def _thinned(detail: Detail) -> Detail:
    """The details with so few points that they can be sent repeatedly."""
    step = len(detail.losses) // MOST_POINTS + 1
    return replace(detail, losses=detail.losses[::-1][::step][::-1])
