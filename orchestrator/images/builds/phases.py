"""The phases of a build, read from the runtime's output: which one runs, and since when."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable

# Apptainer 1.4 and SingularityCE 4 write the lines that begin with INFO, `sh -x` in %post those that begin with +.
STARTS = (
    (r"INFO:\s+(?:Extracting local image|Fetching OCI image|Copying blob|Inserting Singularity)|I: Retrieving", "base"),
    (r"INFO:\s+Copying ", "files"),
    (r"\+ : (.*\S+:\d+: RUN .*)", "{}"),
    (r"\+ .*apt-get .*\b(?:update|install)\b", "Debian packages"),
    (r"\+ .*\bpip install\b", "Python packages"),
    (r"\+ \./configure\b", "MPI"),
    (r"INFO:\s+(?:Adding|Running testscript|Running test scriptlet)", "labels and test"),
    (r"INFO:\s+Creating SIF file", "packing"),
)  # fmt: skip
BEGIN, EXAMINE = "begin", "examining"
REDRAWN_S = 1.0
OF_RUN = re.compile(r"\S+:\d+: RUN ")
LONGEST = 70  # characters of a phase


class Phases:
    """Reports the phases of one build.

    Without `draw` a phase is a line when it begins. With it, it is a line when it has ended, and `draw` gets the
    changing text of the one that runs.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        draw: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._draw, self._clock = say, draw, clock
        self._began_s = self._since_s = clock()
        self._drawn_s = -REDRAWN_S
        self._name = BEGIN

    def line(self, text: str) -> None:
        """A line of the runtime's output."""
        for pattern, name in STARTS:
            if match := re.match(pattern, text):
                inner = OF_RUN.match(self._name) and name in ("Debian packages", "Python packages", "MPI")
                if not inner:  # a RUN of a Dockerfile is the phase, whatever it starts
                    self.begin(_unquoted(match[1]) if name == "{}" else name)
                return

    def begin(self, name: str) -> None:
        """The phase `name` begins, and the one before ends."""
        if name == self._name:
            return
        self._close()
        self._name, self._since_s = name, self._clock()
        if not self._draw:
            self._say(f"{self._stamp(self._since_s)} {name}")
        self.tick()

    def tick(self) -> None:
        """Draw how long the phase has taken, once a second."""
        now = self._clock()
        if self._draw and self._name != BEGIN and now - self._drawn_s >= REDRAWN_S:
            self._drawn_s = now
            self._draw(f"{self._stamp(now)} {self._name}, {stamp(now - self._since_s)}")

    def end(self) -> None:
        """The last phase is over."""
        self._close()
        self._name = BEGIN

    def _close(self) -> None:
        now = self._clock()
        if self._name == BEGIN:
            return
        if self._draw:
            self._draw("")
            self._say(f"{self._stamp(self._since_s)} {self._name}: {stamp(now - self._since_s)}")
            self._drawn_s = -REDRAWN_S

    def _stamp(self, at_s: float) -> str:
        return stamp(at_s - self._began_s)


def _unquoted(shown: str) -> str:
    """A word as `sh -x` shows it, without its quotes."""
    try:
        return " ".join(shlex.split(shown))[:LONGEST]
    except ValueError:
        return shown[:LONGEST]


def stamp(seconds: float) -> str:
    """Seconds as 0:07 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
