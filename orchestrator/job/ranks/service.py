"""Watches the program of a role's first rank: whether it is ready and, if the role asks for that, stays so."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
from pathlib import Path

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.job.ranks.roles import record
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.orchestrator.run.folder.records import LATE, LOST_S, READY, SILENT, WAITING
from torusrun.orchestrator.run.program.what_runs import ReadyCheck

EVERY_S = 1.0  # between checks of a service that is not ready, and looks for a request to stop
READY_EVERY_S = 5.0  # between checks of a service that is ready
ANSWER_S = 5.0  # for an answer of its port
SILENT_S = 20.0  # without an answer, after which a service that was ready is reported
LARGEST_LINE = 4096  # bytes of a line that are compared with a pattern
REPEATED = ("http", "tcp")  # the checks that go on once a service is ready


class Service:
    """The checks of one role, in a thread of its first rank's wrapper; other ranks of the role only obey `told`."""

    def __init__(self, rank: Rank, at: tuple[str, int], log: Path) -> None:
        self.rank, self.role, self.at = rank, rank.role, at  # the address and port of the role
        self.failed = ""  # why its rank has to end, in words
        self.over = False  # whether the main role is
        self._read = 0  # bytes of the log whose lines have been matched
        self._log, self._told_s = log, 0.0
        self._over = threading.Event()  # of the program whose checks run

    def begin(self) -> None:
        """Begin to check, after a start of the program."""
        self._over = threading.Event()
        if self.rank.leads and not self.role.each:
            threading.Thread(target=self._watch, args=(self._over,), name="ready", daemon=True).start()

    def end(self) -> None:
        """End the checks: the program has ended."""
        self._over.set()

    def starts_again(self, longest_s: float) -> None:
        """Record that the program starts again within this time: until then it is not ready, whoever has its port."""
        if self.rank.leads and not self.role.each:
            with contextlib.suppress(TorusrunError):  # a full disk ends no program that could go on
                self._record(WAITING, longest_s)

    def told(self, now_s: float) -> bool:
        """Whether the supervisor has asked this role to stop: the main role is over, or nothing is to be judged."""
        if not self.role.service or now_s < self._told_s + EVERY_S:
            return False
        self._told_s = now_s
        with contextlib.suppress(TorusrunError):
            told = read_object(self.rank.attempt.roles_over) or {}
            self.over = self.role.name in (told.get("roles") or ())
            return told.get("stop") is True if self.role.each else self.over
        return False

    def _watch(self, over: threading.Event) -> None:
        try:
            if self._becomes_ready(over) and self.role.ready.kind in REPEATED:
                self._stays_ready(over)
        except TorusrunError as error:  # a full disk, most likely
            self.failed = str(error)

    def _becomes_ready(self, over: threading.Event) -> bool:
        check, began_s = self.role.ready, time.monotonic()
        self._record(WAITING)
        while not self._answers(check):
            if time.monotonic() > began_s + check.within_s:
                self._record(LATE)  # before its end, so that `status` never shows that it still waits
                self.failed = f"is not ready: {check.words} did not answer within {check.within_s:g} s"
                return False
            if over.wait(EVERY_S):
                return False
        self._record(READY, after_s=round(time.monotonic() - began_s, 3))
        return True

    def _stays_ready(self, over: threading.Event) -> None:
        """Report a service that does not answer any more, and give it up if it has to stay alive."""
        answered_s, silent = time.monotonic(), False
        while not over.wait(READY_EVERY_S):
            if self._answers(self.role.ready):
                answered_s = time.monotonic()
            silence_s = time.monotonic() - answered_s
            if silent != (silence_s > SILENT_S):
                silent = not silent
                self._record(SILENT if silent else READY)
            if self.role.alive and silence_s > LOST_S:
                self.failed = f"was ready, and {self.role.ready.words} has not answered for {LOST_S:g} s"
                return

    def _record(self, state: str, later_s: float = 0.0, **more: float) -> None:
        check = self.role.ready
        within_s = check.within_s + later_s
        record(self.rank.attempt, self.role.name, state, check=check.words, within_s=within_s, **more)

    def _answers(self, check: ReadyCheck) -> bool:
        if check.kind == "http":
            return http_answers(*self.at, check.value)
        if check.kind == "tcp":
            with contextlib.suppress(OSError):
                socket.create_connection(self.at, ANSWER_S).close()
                return True
            return False
        if check.kind == "file":
            return Path(self.role.program.directory or self.rank.attempt.folder, check.value).exists()
        return self._logged(check.value) if check.kind == "log" else True

    def _logged(self, pattern: str) -> bool:
        """Whether a whole line that is new in the log matches."""
        with contextlib.suppress(OSError), open(open_regular(self._log), "rb") as file:
            file.seek(self._read)
            while (line := file.readline(LARGEST_LINE)).endswith(b"\n"):
                self._read += len(line)
                if re.search(pattern, line.decode(errors="replace")):
                    return True
        return False


def http_answers(address: str, port: int, path: str) -> bool:
    """Whether a GET of `path` gets a status from 200 to 299. Redirects are not followed, and no proxy is used."""
    connection = http.client.HTTPConnection(address, port, timeout=ANSWER_S)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 300
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
