"""The details of one run in full-screen, besides its state: losses, nodes, the first error, the end of the log."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.private import status
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import allocation, attempt_folders, metrics
from torusrun.orchestrator.run.folder.at_work import NodeLoad, Slow
from torusrun.orchestrator.run.folder.log_errors.last_error import LoggedError, read_last
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.state.roles import labels
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.logs.files import LINE_BYTES, FollowedFile, Logs, logs, tail
from torusrun.orchestrator.show.logs.ranks import bad_ends
from torusrun.orchestrator.show.screen.nodes import NodeHeard, ordered

MOST_POINTS = 4096
MOST_BYTES = 4 << 20  # of earlier metrics: the curve shows the newest


class Losses:
    """The losses over the steps. Steps that an attempt repeats after a resume replace the earlier ones."""

    def __init__(self, path: Path) -> None:
        self._file = FollowedFile("", path)
        try:
            facts = os.lstat(path)
        except OSError:  # there are no metrics yet
            facts = None
        if facts:
            self._file.begin(facts.st_ino, max(facts.st_size - MOST_BYTES, 0))
        self.points: list[tuple[float, float]] = []

    def read(self) -> list[tuple[float, float]]:
        """All points, (step, loss), including new ones."""
        for line in self._file.new(whole=True):
            row = metrics.row_of(line.text.encode(errors="replace"))
            if row and row["event"] == "step" and "step" in row and row.get("loss") is not None:
                self._add(float(row["step"]), float(row["loss"]))
        return self.points

    def _add(self, step: float, loss: float) -> None:
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        self.points.append((step, loss))
        if len(self.points) > MOST_POINTS:  # merge neighbours into one point
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(later, (first + second) / 2) for (_, first), (later, second) in pairs]


LOOK_S = 2.0  # between looks that read a few files of every node
RESTS = 5  # the next look waits at least this many times as long as the last look took
LOG_LINES = 20
MOST_ENDS = 16  # of ranks that failed, of which the error of the first is searched
READ_BYTES = 1 << 16  # of the log of a rank that has not failed
MARKS = re.compile(r"[\s~^]*")  # a line in which Python marks a part of the line above


@dataclass(frozen=True)
class Detail:
    """`losses` are (step, loss); `error` has the newest line last; `log` is the end of rank 0's."""

    losses: Sequence[tuple[float, float]] = ()
    nodes: Sequence[NodeHeard] = ()
    error: Sequence[str] = ()
    log: Sequence[str] = ()


class Details:
    """The details of one run, refreshed by each look."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._losses = Losses(run.metrics)
        self._due_s = float("-inf")
        self._state: tuple[State, int] | None = None
        self._nodes: list[NodeHeard] = []
        self._error: list[str] = []

    def look(self, view: View) -> Detail:
        attempt = self.run.attempt(view.attempt)
        began_s = time.monotonic()
        if began_s >= self._due_s or self._state != (view.state, view.attempt):
            self._state = (view.state, view.attempt)
            self._nodes = self._at_work(attempt) if view.state is State.RUNNING else []
            self._error = first_error(self.run, view.attempt)
            now_s = time.monotonic()
            self._due_s = now_s + max(LOOK_S, RESTS * (now_s - began_s))
        log = [plain(line) for line in tail(attempt.rank_log(0), LOG_LINES, LOG_LINES * LINE_BYTES) if line.strip()]
        return Detail(self._losses.read(), self._nodes, self._error, log)

    def _at_work(self, attempt: Attempt) -> list[NodeHeard]:
        """The nodes of a running attempt; of a held allocation, the keeper's own."""
        known = nodes(attempt, time.time())
        return [node for node in known if not node.silent] if allocation.is_held(self.run) else known


def nodes(attempt: Attempt, now_s: float) -> list[NodeHeard]:
    """The nodes of the placed ranks, as of `now_s` (of time.time()), in the order of nodes.py."""
    heard, placed, slow = [], attempt_folders.placed(attempt)[1], Slow.read(attempt.slow)
    named = labels(attempt) if attempt.roles.is_dir() else {}
    for host, ranks in placed.items():
        load = attempt.node_load(ranks[0])
        heard_s = _age_s([load, *(attempt.rank_start(rank) for rank in ranks)], now_s)
        wrote_s = _age_s([attempt.rank_log(rank) for rank in ranks], now_s, empty=False)
        own = {rank: named[rank] for rank in ranks if rank in named}
        heard.append(NodeHeard(host, ranks, heard_s, wrote_s, NodeLoad.read(load), len(placed), own))
    return ordered(heard, slow.hosts if slow else ())


def _age_s(paths: Sequence[Path], now_s: float, *, empty: bool = True) -> float | None:
    """Seconds since one of these files was last written; with `empty` False, of files that have content."""
    written = []
    for path in paths:
        with contextlib.suppress(OSError):
            facts = status(path)
            if empty or facts.st_size:
                written.append(facts.st_mtime)
    return max(now_s - max(written), 0.0) if written else None


def first_error(run: RunFolder, attempt: int) -> list[str]:
    """How the first failed rank ended, and its traceback; or a traceback of rank 0 or the job; [] if none.

    Only the end of each log is read.
    """
    try:
        output: Logs = logs(run, attempt)
    except UserError:
        return []
    ends = [(end, read_last(output.attempt.rank_log(end.rank))) for end in bad_ends(output.attempt)[:MOST_ENDS]]
    if ends:
        end, error = next(((end, error) for end, error in ends if not (end.cut_off or error.lost_peer)), ends[0])
        return [plain(end.words), *_lines(error)]
    return _lines(read_last(output.attempt.rank_log(0), READ_BYTES)) or _lines(
        read_last(output.attempt.stderr, READ_BYTES)
    )


def _lines(error: LoggedError) -> list[str]:
    return [plain(line) for line in error.lines if not MARKS.fullmatch(line)] if error.known else []
