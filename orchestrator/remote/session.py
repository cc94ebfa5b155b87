"""A session with a login node: one connection, torusrun of this version on the other side, questions and answers.

The command on the other side is always the same, so that no text of a user's goes through its shell; all else is sent
to its standard input.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import SiteError
from orchestrator.remote import wheels
from orchestrator.remote.links import frames
from orchestrator.remote.links.channel import Channel
from orchestrator.remote.links.connecting import connect
from orchestrator.remote.links.frames import Frame, Unpacker
from orchestrator.remote.links.host import HostRefused, LinkLost, LoginHost

# One line without quotes and exclamation marks: it means the same in sh, bash, zsh, csh and fish.
PROGRAM = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
MARK = b"torusrun: ready\n"
GREETING_BYTES = 1 << 16  # what the shell over there may print before, as some do
WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0)


class Session:
    """An open connection. `ask` is repeated by nobody: what broke is told by LinkLost."""

    def __init__(self, host: LoginHost) -> None:
        self.host = host
        self._link: Channel = connect(host, _command(host.python))
        try:
            self._unpacker = Unpacker(self._link.receive)
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        program = (Path(__file__).parent / "there" / "boot.py").read_bytes()
        needed = wheels.all_wheels()
        listing = frames.packed({"wheels": [wheel.as_json() for wheel in needed]})
        try:
            self._link.send(b"%d\n%b%b" % (len(program), program, listing))
            self._unpacker.skip_to(MARK, GREETING_BYTES)
        except LinkLost as error:
            raise _not_begun(self.host, error) from None
        except ValueError as error:
            raise HostRefused(
                f"{self.host.address}: its shell prints {str(error)[:80]!r} and does not start Python"
            ) from None
        missing = self._answer()[0]["missing"]
        for wheel in needed:
            if wheel.name in missing:
                content = wheel.packed()
                self._link.send(frames.packed({"sha256": hashlib.sha256(content).hexdigest()}, content))
        self.installed: list[str] = self._answer()[0]["installed"]

    def ask(self, question: Mapping[str, Any], payload: bytes = b"") -> Frame:
        """Raises LinkLost, and SiteError with what the other side says is wrong."""
        self._link.send(frames.packed(question, payload))
        return self._answer()

    def interact(self, command: str, *, terminal: bool) -> int:
        """Run a command that `prepare` has answered; see `Channel.interact`."""
        return self._link.interact(command, terminal=terminal)

    def _answer(self) -> Frame:
        try:
            header, payload = self._unpacker.frame()
        except (ValueError, KeyError, TypeError) as error:
            raise LinkLost(f"{self.host.address}: what came is no answer: {error}") from None
        if wrong := header.get("error"):
            raise SiteError(f"{self.host.address}: {wrong}")
        return header, payload

    def close(self) -> None:
        self._link.close()


def _command(python: str) -> str:
    """The fixed command. A home folder is left to the shell over there."""
    home, _, rest = python.partition("/")
    word = f'"$HOME"/{shlex.quote(rest)}' if home == "~" else shlex.quote(python)
    return f"{word} -c {shlex.quote(PROGRAM)}"


def _not_begun(host: LoginHost, error: LinkLost) -> SiteError:
    if error.ended_with is None:
        return error
    needs = f"{host.python} does not start there, and Python 3.10 or newer is needed: name one as `python` in the site"
    return HostRefused(f"{error}; {needs}")


class Lasting:
    """A session that is opened again when its link breaks; what was asked is asked again, so all questions may be.

    The first connection is tried once: a host that does not answer is told of at once.
    """

    def __init__(self, host: LoginHost, patience_s: float, say: Callable[[str], None] | None = None) -> None:
        self.host, self._patience_s, self._say = host, patience_s, say or _say
        self._session = Session(host)
        self.installed = self._session.installed

    def ask(self, question: Mapping[str, Any], payload: bytes = b"") -> Frame:
        """Raises LinkLost when the link has been broken for `patience_s`."""
        while True:
            try:
                return self._session.ask(question, payload)
            except LinkLost as error:
                self._again(error)

    def _again(self, error: LinkLost) -> None:
        self._session.close()
        if self._patience_s <= 0:
            raise error
        self._say(f"{error}; trying again")
        until_s, waits = time.monotonic() + self._patience_s, list(WAITS_S)
        while True:
            try:
                self._session = Session(self.host)
                return self._say(f"{self.host.address}: connected again")
            except LinkLost as again:
                if time.monotonic() > until_s:
                    raise LinkLost(f"{again}; given up after {self._patience_s:g} s") from None
            time.sleep(waits.pop(0) if len(waits) > 1 else waits[0])

    def close(self) -> None:
        self._session.close()

    def __enter__(self) -> Lasting:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _say(text: str) -> None:
    from orchestrator.private import plain

    print(f"torusrun: {plain(text)}", file=sys.stderr, flush=True)
