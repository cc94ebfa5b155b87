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
from torusrun.orchestrator.job.ranks.roles import READY, RolePlace, record
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.orchestrator.run.program.what_runs import ReadyCheck

EVERY_S = 1.0
ANSWER_S = 5.0  # for one answer of its port
LOST_S = 60.0  # without an answer, after which a service that has to stay alive is lost
LARGEST_LINE = 65536


class Service:
    """The checks of one role, in a thread of its first rank's wrapper; other ranks of the role only obey `told`."""

    def __init__(self, rank: Rank, place: RolePlace, log: Path) -> None:
        self.rank, self.role, self.place = rank, rank.role, place
        self.failed = ""  # why its rank has to end, in words
        self._read = 0  # bytes of the log whose lines have been matched
        self._log, self._told_s = log, 0.0
        self._over = threading.Event()

    def begin(self) -> None:
        """Begin to check, after a start of the program."""
        if self.rank.leads:
            threading.Thread(target=self._watch, name="ready", daemon=True).start()

    def end(self) -> None:
        self._over.set()

    def told(self, now_s: float) -> bool:
        """Whether the supervisor has asked this role to stop: the main role is over."""
        if not self.role.service or now_s < self._told_s + EVERY_S:
            return False
        self._told_s = now_s
        with contextlib.suppress(TorusrunError):
            return self.role.name in ((read_object(self.rank.attempt.roles_over) or {}).get("roles") or ())
        return False

    def _watch(self) -> None:
        try:
            if self._becomes_ready() and self.role.alive:
                self._stays_ready()
        except TorusrunError as error:  # a full disk, most likely
            self.failed = str(error)

    def _becomes_ready(self) -> bool:
        check, attempt = self.role.ready, self.rank.attempt
        began_s = time.monotonic()
        words = {"for": check.words, "within_s": check.within_s}
        record(attempt, self.role.name, "waiting", **words)
        while not self._answers(check):
            if time.monotonic() > began_s + check.within_s:
                self.failed = f"is not ready: {check.words} did not answer within {check.within_s:g} s"
                record(attempt, self.role.name, "late", **words)
                return False
            if self._over.wait(EVERY_S if check.kind else 0.0):
                return False
        record(attempt, self.role.name, READY, after_s=round(time.monotonic() - began_s, 3))
        return True

    def _stays_ready(self) -> None:
        answered_s = time.monotonic()
        while not self._over.wait(EVERY_S):
            if self._answers(self.role.ready):
                answered_s = time.monotonic()
            elif time.monotonic() > answered_s + LOST_S:
                self.failed = f"was ready, and {self.role.ready.words} has not answered for {LOST_S:g} s"
                return

    def _answers(self, check: ReadyCheck) -> bool:
        if check.kind == "http":
            return http_answers(self.place.address, self.place.port, check.value)
        if check.kind == "tcp":
            with contextlib.suppress(OSError):
                socket.create_connection((self.place.address, self.place.port), ANSWER_S).close()
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
