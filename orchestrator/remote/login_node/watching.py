"""What a call tells of runs until they are over: `orchestrator.remote.login_node.watching FOLDER`, lines of JSON.

Each has some of these keys:

    views     {number of the run: its view}, of runs that have changed
    missing   numbers of runs that are not there
    detail    [number, details] of the run whose number the file `told` in the folder of the call names
    rows      the table at the end of a run, where one is watched
    over      true in the last line where all runs are over

It ends after a while in any case, and is called again: all that it writes is kept until it has ended and been read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orchestrator.base import private
from orchestrator.base.errors import DONE, TorusrunError
from orchestrator.report.screen.detail import Detail
from orchestrator.report.screen.watched import WatchedHere
from orchestrator.runs.folder import index
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.view import View

MOST_BYTES = 4 << 20
MOST_POINTS = 512  # of a curve, which no terminal has columns for
DETAIL_S = 2.0
LOOKS_S = 0.1  # at which run's details are wanted
AGES = ("age_s", "eta_s", "last_step_age_s")  # what changes with the time alone


def main() -> int:
    os.umask(private.UMASK)
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    left = MOST_BYTES
    try:
        for told in _tell(folder / "told", request["runs"]):
            line = json.dumps(told)
            print(line, flush=True)
            if (left := left - len(line)) < 0:
                break
    except TorusrunError as error:
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # asked to end
        pass
    return DONE


def _tell(asked: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What is to be told, as it changes."""
    known = {run.run_id: run for run in index.runs()}
    there = {n: known[name] for n, name in enumerate(names) if name in known}
    if len(there) < len(names):
        yield {"missing": [n for n in range(len(names)) if n not in there]}
    telling = _Telling(there, asked)
    while True:
        if told := telling.look():
            yield told
        if telling.over:
            return
        telling.rest()


class _Telling:
    """What was told of these runs, by their numbers, and what has changed since."""

    def __init__(self, runs: dict[int, RunFolder], asked: Path) -> None:
        self._watched, self._runs, self._asked = WatchedHere([*runs.values()]), runs, asked
        self._said: dict[str, Any] = {}
        self._wanted: int | None = None
        self._detail_s = float("-inf")

    @property
    def over(self) -> bool:
        return self._watched.over

    def look(self) -> dict[str, Any]:
        views = dict(zip(self._runs, self._watched.look(), strict=True))
        told: dict[str, Any] = {}
        if changed := {n: view.as_json() for n, view in views.items() if self._is_new(f"view {n}", _lasting(view))}:
            told["views"] = changed
        if self._due() and (view := views.get(-1 if self._wanted is None else self._wanted)):
            detail = asdict(_thinned(self._details.look(view)))
            if self._is_new("detail", [self._wanted, detail]):
                told["detail"] = [self._wanted, detail]
            self._detail_s = time.monotonic() + DETAIL_S
        if changed and len(self._runs) == 1 and self._is_new("rows", rows := self._watched.rows(*views.values())):
            told["rows"] = rows
        return {**told, "over": True} if self.over else told

    def rest(self) -> None:
        """Wait for the next look, or until the details of another run are wanted."""
        until_s = time.monotonic() + self._watched.rest_s
        while time.monotonic() < until_s and not self._other_wanted():
            time.sleep(LOOKS_S)

    def _is_new(self, key: str, value: Any) -> bool:
        before, self._said[key] = self._said.get(key), value
        return bool(before != value)

    def _due(self) -> bool:
        return self._other_wanted() or time.monotonic() >= self._detail_s or self.over

    def _other_wanted(self) -> bool:
        try:
            wanted = int(self._asked.read_text())
        except (OSError, ValueError):
            return False
        if wanted == self._wanted or wanted not in self._runs:
            return False
        self._wanted, self._detail_s = wanted, float("-inf")
        self._details = self._watched.details(list(self._runs).index(wanted))
        return True


def _lasting(view: View) -> dict[str, Any]:
    return {key: value for key, value in view.as_json().items() if key not in AGES}


def _thinned(detail: Detail) -> Detail:
    """With so few points that they can be sent again and again."""
    step = len(detail.losses) // MOST_POINTS + 1
    return replace(detail, losses=detail.losses[::-1][::step][::-1])


if __name__ == "__main__":
    sys.exit(main())
