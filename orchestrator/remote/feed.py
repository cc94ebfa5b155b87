"""Runs on a login node for a screen here: a thread requests their news, over links that may break."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.remote import status
from torusrun.orchestrator.remote.links.host import BadAnswer
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session, received
from torusrun.orchestrator.run.state.follow import aged
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.screen.detail import Detail

LOOK_S = 0.25
WAITS_S = 0.5  # the login node waits so long for news
EMPTY_S = 0.02  # pause after an answer: one that came at once must not cause a busy loop
LEAVES_S = 3.0  # for a link that answers; else the other side ends by itself
LARGEST_BYTES = 16 << 20  # for news of several thousand nodes
NOT_YET = "its login node has not answered yet"


@dataclass(frozen=True)
class News:
    """The news of watched runs; `login_node/watching.py` describes the parts."""

    views: Mapping[str, View | None] = field(default_factory=dict)
    detail: tuple[int, Detail] | None = None
    rows: tuple[tuple[str, str], ...] | None = None
    over: bool = False


class Feed:
    """Runs of one login node, in the form of `watch.watched.WatchedRuns`."""

    rest_s = LOOK_S

    def __init__(self, runs: Sequence[Known]) -> None:
        """Raises SiteError if the login node does not answer."""
        self.note, self.over = "", False  # as of the last look
        self._all_over = self._left = False
        self._runs, self._link = list(runs), Session(runs[0].host, say=self._say)
        self._views = [(status.unknown(run, NOT_YET), time.monotonic()) for run in runs]  # with arrival times
        self.newest: tuple[int, Detail] = -1, Detail()  # a run's number, and its details
        self._rows: list[tuple[str, str]] = []
        self._wanted = -1
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *raised: object) -> None:
        self._left = True
        self._reader.join(LEAVES_S)

    def look(self) -> list[View]:
        """The runs as last reported, or as known before. Raises the error that ended the thread."""
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

    def rows(self, view: View) -> list[tuple[str, str]]:
        return self._rows

    def _say(self, text: str) -> None:
        self.note = plain(text)

    def _read(self) -> None:
        names = [run.run for run in self._runs]
        try:
            with self._link as link:
                while not (self._all_over or self._left):
                    question = {"ask": "look", "runs": names, "wanted": self._wanted, "wait_s": WAITS_S}
                    _, news = link.ask(question, largest_bytes=LARGEST_BYTES)
                    self._take(received(link.host, News, news))
                    time.sleep(EMPTY_S)
        except Exception as error:
            self._error = error

    def _take(self, news: News) -> None:
        with self._lock:
            self.note = ""
            for word, view in news.views.items():
                number = self._number(word)
                run, before = self._runs[number], self._views[number][0]
                is_new = view is None or view.state is not before.state
                self._views[number] = status.taken(run, view, keep=is_new), time.monotonic()
            if news.detail:
                number, detail = news.detail
                self.newest = number, replace(detail, losses=sorted(detail.losses))
            self._rows = self._rows if news.rows is None else list(news.rows)
            self._all_over = news.over

    def _number(self, word: str) -> int:
        """The number of a run. Raises BadAnswer if there is no such run."""
        try:
            return range(len(self._runs)).index(int(word))
        except ValueError:
            raise BadAnswer(f"{self._link.host.address}: it reports a run that it was not asked about") from None


@dataclass(frozen=True)
class FarDetails:
    """The newest details of one run of a feed; empty if those are another run's."""

    feed: Feed
    number: int

    def look(self, view: View) -> Detail:
        number, detail = self.feed.newest
        return detail if number == self.number else Detail()
