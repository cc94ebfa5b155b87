"""Runs on the whole terminal, redrawn as they change, until all are over or the user leaves."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from torusrun.orchestrator.base import signals
from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.base.terminal.output import Keys, keys
from torusrun.orchestrator.base.terminal.plain import cut
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import Followed
from torusrun.orchestrator.run.state.view import View, rank
from torusrun.orchestrator.show.screen import pages
from torusrun.orchestrator.show.screen.detail import Details
from torusrun.orchestrator.show.screen.pages import Window

SLICE_S = 0.2  # between checks of the terminal's size
MOVES = {"up": -1, "down": 1}


class Screen:
    """Runs in full-screen: a table of many, or the details of one. `views` are the newest views."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = runs
        self._followed = Followed(runs)
        self.views: list[View] = []
        self._window = Window(0, 0)
        self._selected: int | None = None  # the place of a run among the views
        self._details: Details | None = None
        self._nodes: Window | None = None  # of the page with all nodes of a run, if that is shown
        self._node_rows = 0

    def follow(self) -> None:
        """Draw until all runs are over or the user leaves. The terminal is restored in every case."""
        self.views = self._followed.look()
        if self._followed.over:
            return
        if len(self.views) == 1:
            self._open(0)
        console = output.console(stderr=True)
        with signals.in_order(), _never_stopped(), _restored(console), keys() as pressed, _live(console) as live:
            while True:
                self._draw(live, pressed)
                if self._followed.over or not self._rest(live, pressed):
                    return
                self.views = self._followed.look()

    def _rest(self, live: Live, keys: Keys) -> bool:
        """Wait for the next look, and handle keys meanwhile; False if the user leaves."""
        until_s, size = time.monotonic() + self._followed.rest_s, live.console.size
        while (left_s := until_s - time.monotonic()) > 0:
            pressed = keys.within(min(left_s, SLICE_S))
            for key in pressed:
                if key == "quit":
                    return False
                self._press(key)
            if pressed or live.console.size != size:
                size = live.console.size
                self._draw(live, keys)
        return True

    def _press(self, key: str) -> None:
        shown, at = self._shown()
        if key == "nodes" or (self._nodes and key == "back"):
            self._nodes = None if self._nodes or not self._details else Window(0, 0)
        elif key == "back":
            if len(shown) > 1:
                self._details = None
        elif key == "enter":
            if not self._details:
                self._open(shown[at or 0])
        elif self._nodes:
            top = self._nodes.top + _steps(key, self._nodes.rows, self._node_rows)
            self._nodes = Window(top, self._nodes.rows).around(None, self._nodes.rows, self._node_rows)
        elif len(shown) > 1:
            steps = _steps(key, self._window.rows, len(shown))
            to = 0 if at is None and steps < len(shown) else (at or 0) + steps
            self._selected = shown[min(max(to, 0), len(shown) - 1)]
            if self._details:
                self._open(self._selected)

    def _shown(self) -> tuple[list[int], int | None]:
        """(The indices of the runs among the views, in the order on the screen; the row of the selected run)."""
        shown = sorted(range(len(self.views)), key=lambda number: rank(self.views[number]))
        return shown, None if self._selected is None else shown.index(self._selected)

    def _open(self, number: int) -> None:
        self._selected = number
        self._details = Details(self._runs[number])

    def _draw(self, live: Live, keys: Keys) -> None:
        live.update(Group(*self._lines(live.console, keys.stream is not None)), refresh=True)

    def _lines(self, console: Console, with_keys: bool) -> list[RenderableType]:
        width, height = console.size
        blocks = not console.options.ascii_only
        rows = height - 1
        lines: list[RenderableType]
        if self._details and self._selected is not None:
            view = self.views[self._selected]
            detail = self._details.look(view)
            lines = pages.of_one(view, detail, width, rows, blocks=blocks)
            if self._nodes:
                self._nodes = self._nodes.around(None, max(rows - 3, 1), self._node_rows)
                page, self._node_rows = pages.of_nodes(detail.nodes, self._nodes, width)
                lines = [lines[0], *page]
        else:
            shown, at = self._shown()
            self._window = self._window.around(at, max(rows - 2, 1), len(shown))
            lines = [*pages.of_many([self.views[number] for number in shown], self._window, width)]
        foot = Text(cut(self._foot(with_keys), width), "dim")  # after the windows, because it names their rows
        lines = [*lines[:rows], *[Text("")] * (rows - len(lines)), foot]
        return lines if blocks else [_in_ascii(line) for line in lines]

    def _foot(self, with_keys: bool) -> str:
        if not with_keys:
            return "ctrl-C leaves; the runs continue"
        if self._nodes:
            return f"q leaves  n the run  up, down scroll  {self._nodes.words(self._node_rows)}"
        if len(self.views) == 1:
            return "q leaves; the run continues  n all nodes and ranks"
        if self._details:
            return "q leaves  esc all runs  n all nodes and ranks  up, down the next run"
        return f"q leaves  up, down select  enter shows one  {self._window.words(len(self.views))}"


def _steps(key: str, page: int, of_all: int) -> int:
    """The number of rows by which a key moves."""
    page = max(page - 1, 1)
    return {**MOVES, "page up": -page, "page down": page, "first": -of_all, "last": of_all}[key]


def _in_ascii(line: RenderableType) -> RenderableType:
    """A line for a terminal that shows only ASCII; rich's own drawings respect that already."""
    if isinstance(line, Text):
        line.plain = line.plain.replace("…", ">").encode("ascii", "replace").decode()
    return line


def _live(console: Console) -> Live:
    return Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)


@contextmanager
def _restored(console: Console) -> Iterator[None]:
    """Leave the full screen and show the cursor, also if a signal came while the screen was entered."""
    try:
        yield
    finally:
        if console.is_alt_screen:
            console.set_alt_screen(False)
            console.show_cursor()


@contextmanager
def _never_stopped() -> Iterator[None]:
    """Ignore ctrl-Z during the block: a stopped process would leave the terminal in full-screen."""
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)
