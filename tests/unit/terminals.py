"""A program on a terminal of its own, driven as a user drives it: keys, signals, another size."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
HOME = "\x1b[H"  # what begins a frame of a full-screen view
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


def bare(written: str) -> str:
    """What was written to a terminal, without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).replace("\r", "")


def _as_at_a_login() -> None:
    """The terminal is the process's own, and its keys end programs, even if the tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A Python program on a pseudo-terminal. `written` is all that it wrote to it."""

    def __init__(self, program: str, *argv: str, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self._mine, self._theirs = os.openpty()
        self.resize(columns, lines, tell=False)
        self.before = termios.tcgetattr(self._theirs)
        self.written = ""
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self._child = subprocess.Popen(
            [sys.executable, "-c", program, *argv],
            stdin=self._theirs, stdout=self._theirs, stderr=self._theirs, start_new_session=True,
            preexec_fn=_as_at_a_login,
            env={**kept, "TERM": "xterm", "PYTHONUTF8": "1", "PYTHONPATH": str(ROOT), **environment}, cwd=ROOT,
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._mine)
        os.close(self._theirs)

    def until(self, text: str, after: int = 0) -> int:
        """Wait until the program has written `text` beyond the place `after` of what it wrote; the place behind it."""
        until_s = time.monotonic() + LIMIT_S
        while (at := bare(self.written).find(text, after)) < 0:
            assert time.monotonic() < until_s, f"{text!r} did not come; {bare(self.written)[after:]!r} did"
            self._read()
        return at + len(text)

    def until_shown(self, *lines: str) -> None:
        """Wait until the screen has these lines below each other."""
        until_s = time.monotonic() + LIMIT_S
        while "\n".join(lines) not in "\n".join(self.frame):
            assert time.monotonic() < until_s, f"{lines} did not come; {self.frame} did"
            self._read()

    def press(self, keys: str) -> None:
        os.write(self._mine, keys.encode())

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def resize(self, columns: int, lines: int, *, tell: bool = True) -> None:
        self._size = columns, lines
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if tell:
            self.signal(signal.SIGWINCH)

    def ended(self, within_s: float = LIMIT_S) -> int:
        """Wait until the program has ended; its exit code."""
        until_s = time.monotonic() + within_s
        while self._child.poll() is None:
            assert time.monotonic() < until_s, f"it did not end; it wrote {bare(self.written)!r}"
            self._read()
        while self._read():
            pass
        return self._child.returncode

    @property
    def frame(self) -> list[str]:
        """The lines of the screen as it was drawn last, whole if there is a whole one of this size."""
        drawn = [bare(frame).split("\n") for frame in self.written.partition(LEFT)[0].split(HOME)]
        columns, lines = self._size
        whole = [frame for frame in drawn if len(frame) == lines and len(frame[-1]) == columns]
        return [line.rstrip() for line in (whole or drawn)[-1]]

    @property
    def settled(self) -> bool:
        """Whether the terminal has the settings that it had before."""
        return termios.tcgetattr(self._theirs) == self.before

    @property
    def restored(self) -> bool:
        """Whether the terminal is as it was before: its settings, its usual screen, and its cursor."""
        cursor = self.written.rfind("\x1b[?25h") >= self.written.rfind("\x1b[?25l")
        usual = self.written.count(ENTERED) == self.written.count(LEFT)
        return self.settled and usual and cursor

    def _read(self) -> bool:
        if not select.select([self._mine], [], [], 0.05)[0]:
            return False
        with contextlib.suppress(OSError):
            self.written += os.read(self._mine, 1 << 16).decode(errors="replace")
        return True
