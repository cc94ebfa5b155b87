"""A session with a login node: one connection, torusrun of this version on the other side, questions and answers.

The command on the other side is always the same, so that its shell interprets no text of the user. All other data is
sent to its standard input.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from torusrun.orchestrator.base import process, strangers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.remote import archive
from torusrun.orchestrator.remote.links import frames
from torusrun.orchestrator.remote.links.connecting import Channel, connect
from torusrun.orchestrator.remote.links.frames import Frame, Unpacker
from torusrun.orchestrator.remote.links.host import SILENCE_S, BadAnswer, HostRefused, LinkLost, LoginHost
from torusrun.orchestrator.remote.login_node import boot

# One line without quotes and exclamation marks: it means the same in sh, bash, zsh, csh and fish.
PROGRAM = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
GREETING_BYTES = 1 << 16  # some shells print text before
MOST_PARTS = 1_000_000  # lists and objects in an answer
LONGEST_WHY = 200  # characters of the description of a bad answer
LARGEST_ANSWER = 2 * frames.PIECE_BYTES  # a call's output and its errors
ANSWER_BYTES = 1 << 16  # of an answer's header, which may repeat names from the question
SLOWEST_BYTES_PER_S = 8192  # a slower answer is not awaited
INSTALL_S = 60.0  # for unpacking torusrun's files on a slow file system
WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0)
PATIENCE_S = 1800.0  # calls on the login node wait as long for a reader

SAID_NOTHING = "it said nothing"
LINK_ENDED = ("the link broke", "the connection ended")  # a link's message if its program ended without one

Heard = Callable[[float], object]
Kind = TypeVar("Kind")


class Session:
    """A connection that is reopened when its link breaks, and then repeats the question; all questions may be repeated.

    It gives up after `patience_s` without an answer, and tries the first connection once. `say` gets messages about the
    link. Received data is bounded in size and time. `heard` is called at each sign of life, with the extra time (in
    seconds) that is allowed for the next one. Without `asks`, the user is not asked for a password or a code.
    """

    def __init__(
        self,
        host: LoginHost,
        patience_s: float = PATIENCE_S,
        say: Callable[[str], object] = say,
        *,
        asks: bool = True,
        heard: Heard = lambda more_s: None,
    ) -> None:
        self.host, self._patience_s, self._say, self._asks, self._heard = host, patience_s, say, asks, heard
        self._open()
        self._tried, self._answered_s = 0, time.monotonic()  # connections since the last answer, and its time

    def _open(self) -> None:
        self._until_s = float("inf")  # of time.monotonic(): the deadline of an answer that has begun
        archive.name()  # this takes a moment, and is kept
        self._heard(0.0)
        self._link: Channel = connect(self.host, _command(self.host.python), asks=self._asks)
        self._unpacker = Unpacker(self._receive)
        try:
            self._begin()
        except LinkLost as error:
            self.close()
            raise _not_begun(self.host, error) from None
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        program = b"".join(Path(file).read_bytes() for file in (strangers.__file__, boot.__file__))
        try:
            self._link.send(b"%d\n%b%b" % (len(program), program, frames.packed({"archive": archive.name()})))
            self._unpacker.until(boot.MARK, GREETING_BYTES)
        except ValueError as error:
            raise HostRefused(
                f"{self.host.address}: its shell prints {str(error)!r} and does not start Python"
            ) from None
        if received(self.host, tuple[str, ...], self._answer()[0].get("missing")):
            content = archive.packed()
            self._heard(INSTALL_S)
            self._link.send(frames.packed({"sha256": hashlib.sha256(content).hexdigest()}, content))
        self._answer()

    def ask(self, question: Mapping[str, Any], payload: bytes = b"", *, largest_bytes: int = LARGEST_ANSWER) -> Frame:
        """The answer to a question. Raises LinkLost, BadAnswer, and SiteError for a problem that the host reports."""
        packed = frames.packed(question, payload)
        while True:
            try:
                self._link.send(packed)
                answer = self._answer(ANSWER_BYTES + len(packed) - len(payload), largest_bytes)
            except LinkLost as error:
                self._again(error)
            else:
                self._tried, self._answered_s = 0, time.monotonic()
                return answer

    def _again(self, error: LinkLost) -> None:
        """Connect again. Raises LinkLost if that fails for too long."""
        self.close()
        if self._patience_s <= 0:
            raise error
        self._say(f"{error}; trying again")
        while True:
            if self._tried and time.monotonic() > self._answered_s + self._patience_s:
                raise LinkLost(f"{error}; given up after {self._patience_s:g} s")
            if self._tried:
                time.sleep(WAITS_S[min(self._tried, len(WAITS_S)) - 1])
            self._tried += 1
            try:
                self._open()
                self._say(f"{self.host.address}: connected again")
                return
            except LinkLost as again:
                error = again

    def interact(self, words: Sequence[str], *, terminal: bool, streams: Streams | None = None) -> int:
        """Run `torusrun WORDS...` there over the same link; see `Channel.interact`."""
        answer, _ = self.ask({"ask": "command", "words": list(words)})
        return self._link.interact(
            received(self.host, str, answer.get("command"), str), terminal=terminal, streams=streams
        )

    def _answer(self, longest_header: int = ANSWER_BYTES, largest_bytes: int = LARGEST_ANSWER) -> Frame:
        self._until_s = float("inf")
        try:
            header, payload = self._unpacker.frame(longest_header, largest_bytes)
        except ValueError as error:
            raise BadAnswer(f"{self.host.address}: this is not an answer: {error}") from None
        if wrong := header.get("error"):
            raise SiteError(f"{self.host.address}: {wrong}")
        return header, payload

    def _receive(self) -> bytes:
        """The next bytes. Raises LinkLost if an answer arrives so slowly that it may never end."""
        data, now_s = self._link.receive(), time.monotonic()
        self._until_s = min(self._until_s, now_s + SILENCE_S) + len(data) / SLOWEST_BYTES_PER_S
        if now_s > self._until_s:
            raise LinkLost(f"{self.host.address}: the link broke: an answer came too slowly")
        self._heard(0.0)
        return data

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def received(host: LoginHost, kind: type[Kind], sent: Any, text: Callable[[str], str] = plain) -> Kind:
    """The value in a login node's answer: JSON text, or the form that `record_of` takes. Raises BadAnswer."""
    try:
        if isinstance(sent, (bytes, bytearray)):
            if sent.count(b"[") + sent.count(b"{") > MOST_PARTS:  # it would take many times as much memory as bytes
                raise ValueError("it has too many parts")
            sent = parsed(bytes(sent))
        found: Kind = record_of(kind, sent, text)
    except ValueError as error:
        why = plain(str(error))[:LONGEST_WHY]
        raise BadAnswer(f"{host.address}: its answer is not what torusrun sends: {why}") from None
    return found


def _command(python: str) -> str:
    """The fixed command. The shell on the login node expands a home folder in it."""
    home, _, rest = python.partition("/")
    word = f'"$HOME"/{shlex.quote(rest)}' if home == "~" else shlex.quote(python)
    return f"{word} {shlex.join(process.bare_program('', PROGRAM)[1:])}"


def _not_begun(host: LoginHost, error: LinkLost) -> SiteError:
    """The same error; if the Python there has ended, its last words with advice."""
    if error.ended_with is None:
        return error
    said = str(error).removeprefix(f"{host.address}: ").strip()
    why = SAID_NOTHING if not said or said.startswith(LINK_ENDED) else said.splitlines()[-1].strip()
    ended = f"`{host.python}` ended with exit code {error.ended_with} there"
    needs = "Python 3.10 or newer is needed: name one as `python` in the site"
    return HostRefused(f"{host.address}: {why}; {ended}; {needs}")
