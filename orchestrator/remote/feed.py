"""Runs on a login node for a screen here: a thread reads what `telling` tells of them, through links that break."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from orchestrator.errors import SiteError
from orchestrator.private import plain
from orchestrator.remote import asking, known, status
from orchestrator.remote.asking import Gone
from orchestrator.remote.known import Known
from orchestrator.remote.session import Lasting
from orchestrator.remote.values import record_of
from orchestrator.remote.verbs import PATIENCE_S
from orchestrator.screen.detail import Detail
from orchestrator.watch.follow import aged
from orchestrator.watch.view import View

LOOK_S = 0.25
WAITS_S = 0.5  # for what is told, before the next question
LEAVES_S = 3.0  # for a link that answers; else the other side ends by itself
TELLING = "orchestrator.remote.there.telling"


class Feed:
    """Runs of one login node, as `watch.watched.WatchedRuns` has them."""

    rest_s = LOOK_S

    def __init__(self, runs: Sequence[Known]) -> None:
        """Raises SiteError where the login node does not answer."""
        self.note, self.over = "", False  # as of the last look
        self._all_over = False
        self._runs, self._link = list(runs), Lasting(runs[0].host, PATIENCE_S, self._say)
        self._views: dict[int, tuple[View, float]] = {}  # and when they came
        self._detail: tuple[int, Detail] = -1, Detail()
        self._rows: list[tuple[str, str]] = []
        self._wanted = self._asked_for = -1
        self._error: Exception | None = None
        self._left = False
        self._new = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *raised: object) -> None:
        self._left = True
        self._reader.join(LEAVES_S)

    def look(self) -> list[View]:
        """Raises what ended the reading."""
        with self._new:
            self._new.wait_for(lambda: len(self._views) == len(self._runs) or self._error)
            if self._error:
                raise self._error
            now_s, self.over = time.monotonic(), self._all_over
            return [aged(view, now_s - came_s) for _, (view, came_s) in sorted(self._views.items())]

    def follow(self) -> Iterator[list[View]]:
        """The views again and again, until all runs are over."""
        while not self.over:
            yield self.look()
            time.sleep(self.rest_s)

    def details(self, folder: str) -> FarDetails:
        self._wanted = next(n for n, (view, _) in self._views.items() if view.folder == folder)
        return FarDetails(self, self._wanted)

    def detail(self, number: int) -> Detail:
        """What was told of a run last; nothing where that was another one."""
        return self._detail[1] if self._detail[0] == number else Detail()

    def rows(self, view: View) -> list[tuple[str, str]]:
        return self._rows

    def _say(self, text: str) -> None:
        self.note = plain(text)

    def _read(self) -> None:
        try:
            with self._link as link:
                while not self._all_over:
                    self._listen(link)
        except _Left:
            pass
        except Exception as error:
            with self._new:
                self._error = error
                self._new.notify_all()

    def _listen(self, link: Lasting) -> None:
        """One call, to its end."""
        name, said, err, self._asked_for = secrets.token_hex(12), bytearray(), bytearray(), -1

        def take(data: bytes) -> None:
            said.extend(data)
            *lines, rest = said.split(b"\n")
            said[:] = rest
            for line in lines:
                self._take(json.loads(line))

        request = {"runs": [run.run for run in self._runs]}
        try:
            code = asking.call(link, [TELLING], request, take, err.extend, name, lambda: self._between(link, name))
            if code:
                raise SiteError(f"{link.host.address}: {err.decode(errors='replace').strip() or f'exit code {code}'}")
        except Gone:  # the login node was restarted: it is asked again
            time.sleep(LOOK_S)
        link.ask({"ask": "forget", "call": name})

    def _between(self, link: Lasting, name: str) -> float:
        """Between two questions: ask for the details that are wanted, or leave; how long the next answer may take."""
        self.note = ""
        if self._left:
            with suppress(SiteError):
                link.ask({"ask": "forget", "call": name})
            raise _Left
        if self._wanted != self._asked_for:
            link.ask({"ask": "tell", "call": name, "text": str(self._wanted)})
            self._asked_for = self._wanted
        return WAITS_S

    def _take(self, told: dict[str, Any]) -> None:
        now_s = time.monotonic()
        with self._new:
            for word, said in told.get("views", {}).items():
                run, before = self._runs[int(word)], self._views.get(int(word))
                view = status.view_of(run, said)
                self._views[int(word)] = view, now_s
                if before is None or before[0].state is not view.state:
                    known.seen(run, said)
            for number in told.get("missing", []):
                self._views[number] = status.missing(self._runs[number]), now_s
            if "detail" in told:
                self._detail = told["detail"][0], record_of(Detail, told["detail"][1])
            self._rows = [(name, plain(value)) for name, value in told.get("rows", self._rows)]
            self._all_over = told.get("over", False)
            self._new.notify_all()


class _Left(Exception):
    """The user left."""


class FarDetails:
    """One run of a feed."""

    def __init__(self, feed: Feed, number: int) -> None:
        self._feed, self._number = feed, number

    def look(self, view: View) -> Detail:
        return self._feed.detail(self._number)
