"""Runs on a login node for a screen here: a thread reads what `telling` tells of them, through links that break."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from orchestrator.base.errors import SiteError
from orchestrator.base.terminal.plain import plain
from orchestrator.remote import asking, status
from orchestrator.remote.asking import Gathered, Gone
from orchestrator.remote.links.host import BadAnswer
from orchestrator.remote.remote_runs import Known
from orchestrator.remote.replies import Told
from orchestrator.remote.session import Lasting
from orchestrator.remote.values import received
from orchestrator.remote.verbs import PATIENCE_S
from orchestrator.report.screen.detail import Detail
from orchestrator.runs.state.follow import aged
from orchestrator.runs.state.view import View

LOOK_S = 0.25
WAITS_S = 0.5  # for what is told, before the next question
LEAVES_S = 3.0  # for a link that answers; else the other side ends by itself
LONGEST_LINE_BYTES = 16 << 20  # of some thousand nodes
NOT_YET = "its login node has not answered yet"
TELLING = "orchestrator.remote.login_node.watching"


class Feed:
    """Runs of one login node, as `watch.watched.WatchedRuns` has them."""

    rest_s = LOOK_S

    def __init__(self, runs: Sequence[Known]) -> None:
        """Raises SiteError where the login node does not answer."""
        self.note, self.over = "", False  # as of the last look
        self._all_over = False
        self._runs, self._link = list(runs), Lasting(runs[0].host, PATIENCE_S, self._say)
        self._views = [(status.unknown(run, NOT_YET), time.monotonic()) for run in runs]  # and when they came
        self._detail: tuple[int, Detail] = -1, Detail()
        self._rows: list[tuple[str, str]] = []
        self._wanted = self._asked_for = -1
        self._error: Exception | None = None
        self._left = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *raised: object) -> None:
        self._left = True
        self._reader.join(LEAVES_S)

    def look(self) -> list[View]:
        """The runs as last reported, or as known before. Raises the error that ended the reading."""
        with self._lock:
            if self._error:
                raise self._error
            now_s, self.over = time.monotonic(), self._all_over
            return [aged(view, now_s - came_s) for view, came_s in self._views]

    def follow(self) -> Iterator[list[View]]:
        """The views again and again, until all runs are over."""
        while not self.over:
            yield self.look()
            time.sleep(self.rest_s)

    def details(self, number: int) -> FarDetails:
        self._wanted = number
        return FarDetails(self, number)

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
            self._error = error

    def _listen(self, link: Lasting) -> None:
        """One call, to its end."""
        name, rest, self._asked_for = secrets.token_hex(12), b"", -1
        err = Gathered(link.host, LONGEST_LINE_BYTES)

        def take(data: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE_BYTES:
                raise BadAnswer(f"{link.host.address}: a line of what it tells has no end")
            for line in lines:
                self._take(received(link.host, Told, line))

        request = {"runs": [run.run for run in self._runs]}
        try:
            code = asking.call(link, [TELLING], request, take, err, name, lambda: self._between(link, name))
            if code:
                raise SiteError(f"{link.host.address}: {err.text.strip() or f'exit code {code}'}")
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

    def _take(self, told: Told) -> None:
        views = {self._number(word): view for word, view in told.views.items()}
        missing = dict.fromkeys((self._number(number) for number in told.missing), None)
        with self._lock:
            for number, view in {**views, **missing}.items():
                run, before = self._runs[number], self._views[number][0]
                is_new = view is None or view.state is not before.state
                self._views[number] = status.taken(run, view, keep=is_new), time.monotonic()
            if told.detail:
                number, detail = told.detail
                self._detail = number, replace(detail, losses=sorted(detail.losses))
            self._rows = self._rows if told.rows is None else list(told.rows)
            self._all_over = told.over

    def _number(self, word: str | int) -> int:
        """The number of a run. Raises BadAnswer for one that there is not."""
        try:
            return range(len(self._runs)).index(int(word))
        except ValueError:
            raise BadAnswer(f"{self._link.host.address}: it tells of a run that it was not asked about") from None


class _Left(Exception):
    """The user left."""


class FarDetails:
    """One run of a feed."""

    def __init__(self, feed: Feed, number: int) -> None:
        self._feed, self._number = feed, number

    def look(self, view: View) -> Detail:
        return self._feed.detail(self._number)
