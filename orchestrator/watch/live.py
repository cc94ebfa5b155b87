"""A run on the terminal: one line that is drawn anew, or, where there is no terminal, a new line now and then."""

from __future__ import annotations

import os
import re
import sys
import time

from orchestrator.runs.folder import RunFolder
from orchestrator.runs.outcome import DONE
from orchestrator.watch import terminal
from orchestrator.watch.bar import ASCII, BLOCKS, line, words
from orchestrator.watch.follow import follow
from orchestrator.watch.plain import plain
from orchestrator.watch.tail import newest_line
from orchestrator.watch.view import View
from orchestrator.watch.width import display_width

LINE_EVERY_S = 10.0
ENDING = f"ending: {DONE}"
ERASED = "\r\x1b[2K"


def show(run: RunFolder) -> View:
    """Follow a run to its end on the terminal; its last view."""
    drawable = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return _drawn(run) if drawable else _lines(run)


def _drawn(run: RunFolder) -> View:
    """One line, drawn over and over. What is remarkable and does not fit into it is told once above it."""
    told = {""}
    try:
        for view in follow(run):
            width = terminal.width(sys.stderr) or terminal.USUAL_WIDTH
            remarks = "" if view.state.over else plain(view.remarks)
            gist = re.sub(r"[0-9.]+", "", remarks)  # 'no step for 4 min' grows by the minute
            if gist not in told and remarks != ENDING and not _fits(view, width):
                told.add(gist)
                _draw(f"{remarks}\n")
            _draw(line(view, _said(run, view), width - 1, _marks()))
    finally:
        print(file=sys.stderr, flush=True)
    return view


def _draw(text: str) -> None:
    print(f"{ERASED}{text}", end="", file=sys.stderr, flush=True)


def _fits(view: View, width: int) -> bool:
    return view.step is None and display_width(words(view, "")) < width


def _marks() -> tuple[str, str]:
    """What the terminal's encoding can show a bar with."""
    try:
        "".join(BLOCKS).encode(sys.stderr.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def _lines(run: RunFolder) -> View:
    said, due_s = "", 0.0
    for view in follow(run):
        if view.state.value != said or time.monotonic() >= due_s:
            said, due_s = view.state.value, time.monotonic() + LINE_EVERY_S
            print(words(view, _said(run, view)), file=sys.stderr, flush=True)
    return view


def _said(run: RunFolder, view: View) -> str:
    """The newest line of rank 0's log, of a run that has no step to show."""
    return newest_line(run.attempt(view.attempt).rank_log(0)) if view.step is None else ""
