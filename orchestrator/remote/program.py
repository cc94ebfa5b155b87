"""The program that a request starts on a login node: it gets what it needs, and its output is read.

Its command is always the same, so that the shell of the login node interprets no text of the user.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import process, strangers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.remote import boot
from torusrun.orchestrator.remote.host import (
    CONNECT_S,
    LOST,
    REFUSED,
    UNREACHED,
    BadAnswer,
    HostRefused,
    LinkLost,
    LoginHost,
    Unanswered,
    Unreached,
)

# One line without quotes and exclamation marks: it means the same in sh, bash, zsh, csh and fish.
PROGRAM = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
REFUSALS = ("Host key verification failed", "Permission denied", "HOST IDENTIFICATION HAS CHANGED")
# Of ssh.c and sshconnect.c: before a connection.
UNREACHED_BY_SSH = ("ssh: connect to host ", "ssh: Could not resolve hostname ")
BLOCK_BYTES = 1 << 16
GREETING_BYTES = 1 << 16  # some shells print text before
MOST_PARTS = 1_000_000  # lists and objects in an answer
LONGEST_WHY = 200  # characters of the description of a bad answer
LOGIN_S = 120.0  # for a user who types a second factor
LONGEST_S = 2 * 3600.0  # for an answer: a submission may build an image first
INSTALL_S = 60.0  # for unpacking torusrun's files on a slow file system
QUIET_S = 30.0  # then the user learns that an answer is awaited

reached: set[LoginHost] = set()  # by this process

Take = Callable[[bytes], object]


@dataclass(frozen=True)
class WaitLimits:
    """The most seconds until the program begins, and from then to its end; `asks` lets ssh ask the user."""

    login_s: float = LOGIN_S
    answer_s: float = LONGEST_S
    asks: bool = True


class FarProgram:
    """The program of one request: its output, and the bytes that it has still to be sent."""

    def __init__(
        self, host: LoginHost, request: Mapping[str, Any], content: Iterable[bytes], limits: WaitLimits
    ) -> None:
        program = b"".join(Path(file).read_bytes() for file in (strangers.__file__, boot.__file__))
        head = b"%d\n%b%b\n" % (len(program), program, json.dumps(request).encode())
        self._host, self._limits, self._unsent = host, limits, itertools.chain([head], content)
        self._sending = memoryview(b"")
        self._has_answered = False
        self._out, self._err = bytearray(), bytearray()  # before the answer: the output; the last errors
        self._until_s = time.monotonic() + limits.login_s
        self._program = process.converse(host.argv(_command(host.python), asks=limits.asks))
        assert self._program.stdin and self._program.stdout and self._program.stderr
        self._streams = self._program.stdin, self._program.stdout, self._program.stderr
        for stream in self._streams:
            os.set_blocking(stream.fileno(), False)
        self._pieces = self._arriving()

    def __enter__(self) -> FarProgram:
        return self

    def __exit__(self, *raised: object) -> None:
        """End the connection; a far program that only reports ends with it."""
        self._program.kill()
        self._program.wait()
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()

    def begun(self) -> dict[str, Any]:
        """The first answer of the program. Raises HostRefused if it does not start, LinkLost, SiteError."""
        for is_output, data in self._pieces:
            if not is_output:
                self._err = (self._err + data)[-BLOCK_BYTES:]
                continue
            self._out += data
            _, mark, rest = self._out.partition(boot.MARK)
            line, end, after = rest.partition(b"\n")
            if mark and end:
                return self._first(bytes(line), after)
            if len(self._out) > GREETING_BYTES:
                greeting = bytes(self._out[:LONGEST_WHY]).decode(errors="replace")
                why = "its answer has no end" if mark else f"its shell prints {greeting!r} and does not start Python"
                raise HostRefused(f"{self._host.address}: {why}")
        raise self._not_begun()

    def _first(self, line: bytes, after: bytearray) -> dict[str, Any]:
        first: dict[str, Any] = received(self._host, dict[str, Any], line)
        if wrong := first.get("error"):
            raise SiteError(f"{self._host.address}: {plain(str(wrong))}")
        self._out, self._has_answered = after, True
        reached.add(self._host)
        self._until_s = time.monotonic() + self._limits.answer_s
        return first

    def output(self, out: Take, err: Take) -> int:
        """Pass on what the program prints until its end; its exit code. Raises LinkLost, and Unanswered if too late."""
        if self._err:
            err(bytes(self._err))
        if self._out:
            out(bytes(self._out))
        for is_output, data in self._pieces:
            (out if is_output else err)(data)
        code = self._program.wait(CONNECT_S)
        if code in (LOST, -LOST):
            raise LinkLost(f"{self._host.address}: the link broke", begun=True)
        return code & 0xFF

    def _arriving(self) -> Iterator[tuple[bool, bytes]]:
        """(True for output and False for errors, the next bytes), until the end of both."""
        to, out, err = self._streams
        quiet_s = time.monotonic() + QUIET_S
        with selectors.DefaultSelector() as selector:
            selector.register(to, selectors.EVENT_WRITE)
            for stream in (out, err):
                selector.register(stream, selectors.EVENT_READ)
            while {out, err} & {key.fileobj for key in selector.get_map().values()}:
                if (left_s := self._until_s - time.monotonic()) <= 0:
                    raise self._too_late()
                if self._has_answered and time.monotonic() > quiet_s and self._limits.answer_s < float("inf"):
                    say(f"{self._host.address} is at work and has not answered yet")
                    quiet_s = float("inf")
                for key, _ in selector.select(min(left_s, 1.0)):
                    if key.fileobj is to:
                        if not self._sent_some():
                            selector.unregister(to)
                        continue
                    if not (data := os.read(key.fd, BLOCK_BYTES)):
                        selector.unregister(key.fileobj)
                        continue
                    quiet_s = float("inf") if self._has_answered else quiet_s
                    yield key.fileobj is out, data

    def _sent_some(self) -> bool:
        """Send some of the remaining bytes; False if none remain, or if nobody reads them. The stream stays open."""
        if not self._sending:
            self._sending = memoryview(next(self._unsent, b""))
            if not self._sending:
                return False
        try:
            self._sending = self._sending[os.write(self._streams[0].fileno(), self._sending[:BLOCK_BYTES]) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _too_late(self) -> Unanswered:
        if self._has_answered:
            return Unanswered(f"{self._host.address}: it has not answered within {self._limits.answer_s:g} s")
        return LinkLost(f"{self._host.address}: no answer within {self._limits.login_s:g} s")

    def _not_begun(self) -> SiteError:
        """The error of a program that ended before it began: that of ssh, or the last line of the far Python."""
        name, words = self._host.address, self._err.decode(errors="replace").strip()
        try:
            code = self._program.wait(CONNECT_S)
        except subprocess.TimeoutExpired:
            code = LOST
        if code in (LOST, REFUSED, UNREACHED):
            error = words.removeprefix("torusrun: ").removeprefix(f"{name}: ") or "ssh ended and said nothing"
            why = f"{name}: {error}"
            if code == REFUSED:
                return HostRefused(why)
            if any(refusal in words for refusal in REFUSALS):
                return HostRefused(f"{why}. Run `ssh {name}` by hand once: torusrun continues once that works")
            is_unreached = code == UNREACHED or words.startswith(UNREACHED_BY_SSH)
            return Unreached(why) if is_unreached else LinkLost(why)
        last = words.splitlines()[-1].strip() if words else "it said nothing"
        ended = f"`{self._host.python}` ended with exit code {code} there"
        return HostRefused(f"{name}: {last}; {ended}; Python 3.10 or newer is needed: name one as `python` in the site")


def received(host: LoginHost, kind: Any, sent: bytes, text: Callable[[str], str] = plain) -> Any:
    """The value of this kind in JSON text from a login node. Raises BadAnswer."""
    try:
        if sent.count(b"[") + sent.count(b"{") > MOST_PARTS:  # it would take many times as much memory as bytes
            raise ValueError("it has too many parts")
        value = parsed(sent)
    except ValueError as error:
        raise _bad(host, error) from None
    return typed(host, kind, value, text)


def typed(host: LoginHost, kind: Any, value: Any, text: Callable[[str], str] = plain) -> Any:
    """The value of this kind in JSON from a login node. Raises BadAnswer."""
    try:
        return record_of(kind, value, text)
    except ValueError as error:
        raise _bad(host, error) from None


def _bad(host: LoginHost, error: ValueError) -> BadAnswer:
    why = plain(str(error))[:LONGEST_WHY]
    return BadAnswer(f"{host.address}: its answer is not what torusrun sends: {why}")


def _command(python: str) -> str:
    """The fixed command. The shell on the login node expands a home folder in it."""
    return f"{python_word(python)} {shlex.join(process.bare_program('', PROGRAM)[1:])}"


def python_word(python: str) -> str:
    home, _, rest = python.partition("/")
    return f'"$HOME"/{shlex.quote(rest)}' if home == "~" else shlex.quote(python)
