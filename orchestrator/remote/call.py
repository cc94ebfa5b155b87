"""Requests to a login node. Each starts a program there, over the user's `ssh` or fabric, and reads what it prints.

The command on the other side is always the same, so that its shell interprets no text of the user. All other data is
sent to its standard input; only a verb on a terminal has its words, encoded, on its command line.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import USER_MISTAKE, SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.base.terminal.plain import harmless, plain
from torusrun.orchestrator.base.terminal.remarks import progress, say
from torusrun.orchestrator.remote import archive
from torusrun.orchestrator.remote.host import LOST, BadAnswer, LinkLost, LoginHost
from torusrun.orchestrator.remote.program import INSTALL_S, FarProgram, Take, WaitLimits, python_word, reached, received

LARGEST_BYTES = 64 << 20  # of an answer
WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0)
PATIENCE_S = 1800.0

Result = TypeVar("Result")

USUAL = WaitLimits()
ENDLESS = WaitLimits(answer_s=float("inf"))


@dataclass(frozen=True)
class VerbOutput:
    """What a verb printed on the login node, and its exit code."""

    code: int
    out: bytes
    err: str


def call(
    host: LoginHost,
    request: Mapping[str, Any],
    out: Take,
    err: Take,
    content: Iterable[bytes] = (),
    limits: WaitLimits = USUAL,
) -> int:
    """Carry out a request on the login node, and pass on its output as it arrives; its exit code.

    If torusrun is missing there, it is installed first. `content` follows the request. Raises LinkLost if the link
    breaks, HostRefused if no link opens, SiteError for a problem that the host reports.
    """
    with FarProgram(host, {**request, "archive": archive.name()}, content, limits) as program:
        if not program.begun().get("missing"):
            return program.output(out, err)
    _install(host, limits)
    with FarProgram(host, {**request, "archive": archive.name()}, content, limits) as program:
        program.begun()
        return program.output(out, err)


def _install(host: LoginHost, limits: WaitLimits) -> None:
    packed = archive.packed()
    sent = {"do": "install", "bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    longer = WaitLimits(limits.login_s + INSTALL_S, limits.answer_s, limits.asks)
    with FarProgram(host, {**sent, "archive": archive.name()}, [packed], longer) as program:
        program.begun()


def captured(
    host: LoginHost, request: Mapping[str, Any], content: Iterable[bytes] = (), limits: WaitLimits = USUAL
) -> VerbOutput:
    """Carry out a request on the login node, and keep its output. Raises as `call`, and BadAnswer if it is too much."""
    out, err = bytearray(), bytearray()

    def gather(into: bytearray) -> Take:
        def take(data: bytes) -> None:
            if len(into) + len(data) > LARGEST_BYTES:
                raise BadAnswer(f"{host.address}: its answer is larger than {LARGEST_BYTES:,} bytes")
            into.extend(data)

        return take

    code = call(host, request, gather(out), gather(err), content, limits)
    return VerbOutput(code, bytes(out), err.decode(errors="replace").strip())


def answer(
    host: LoginHost,
    request: Mapping[str, Any],
    kind: Any,
    limits: WaitLimits = USUAL,
    text: Callable[[str], str] = plain,
) -> Any:
    """The JSON that a request prints on the login node, as a value of this kind; its remarks are printed here.

    `text` is applied to every string of it. Raises as `captured`, and UserError or SiteError with the reported problem.
    """
    ended = checked(host, captured(host, request, limits=limits))
    return received(host, kind, ended.out, text)


def checked(host: LoginHost, ended: VerbOutput) -> VerbOutput:
    """Print the remarks of a verb that ended well. Raises UserError or SiteError with the report of a failed verb."""
    if ended.code:
        error: type[TorusrunError] = UserError if ended.code == USER_MISTAKE else SiteError
        why = ended.err.removeprefix("torusrun: ") or f"it ended with exit code {ended.code}"
        raise error(f"{host.address}: {why}")
    if ended.err:
        progress(private.plain(ended.err))
    return ended


def words(*given: str, buffered: bool = False) -> dict[str, Any]:
    """The request that runs `torusrun GIVEN...`. If `buffered` it goes on without a link, and prints at its end."""
    return {"do": "verb", "words": list(given), "buffered": buffered}


def interact(host: LoginHost, given: Sequence[str], *, terminal: bool, streams: Streams | None = None) -> int:
    """Run `torusrun GIVEN...` on the login node; its exit code.

    The verb has `streams`, or the streams of this program, on a terminal if `terminal`.
    """
    folder = answer(host, {"do": "folder"}, str)
    encoded = base64.urlsafe_b64encode(json.dumps(list(given)).encode()).decode()
    file = f"{folder}/torusrun/orchestrator/remote/boot.py"
    command = f"{python_word(host.python)} {shlex.quote(file)} {encoded}"
    argv = host.argv(command, terminal=terminal)
    code = process.join(argv, streams) if streams else process.interact(argv)
    if code == LOST:
        raise LinkLost(f"{host.address}: the link broke, and ended what ran there")
    return code


def repeated(host: LoginHost, act: Callable[[], Result]) -> Result:
    """The result of an act that may be repeated: it is, for PATIENCE_S, if a link breaks to a host that was reached."""
    since_s, tried = time.monotonic(), 0
    while True:
        try:
            return act()
        except LinkLost as error:
            since_s = time.monotonic() if error.begun else since_s
            if host not in reached:
                raise
            if time.monotonic() > since_s + PATIENCE_S:
                raise LinkLost(f"{error}; given up after {PATIENCE_S:g} s") from None
            if not tried:
                say(f"{error}; trying again")
            time.sleep(WAITS_S[min(tried, len(WAITS_S) - 1)])
            tried += 1


def shown(stream: IO[str]) -> Take:
    """Prints pieces of bytes on a stream of ours. A character may be split over two pieces.

    On a terminal, control characters are escaped: the programs there write into a pipe, and so without colours.
    """
    decoder, on_terminal = codecs.getincrementaldecoder("utf-8")("replace"), stream.isatty()

    def show(data: bytes) -> None:
        text = decoder.decode(data)
        stream.write("\n".join(map(harmless, text.split("\n"))) if on_terminal else text)
        stream.flush()

    return show
