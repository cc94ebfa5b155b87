"""A call from this side: it is started once, and read to its end over any number of links."""

from __future__ import annotations

import codecs
import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import IO, Any, TypeVar

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import USER_MISTAKE, SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.terminal.plain import harmless, plain
from torusrun.orchestrator.base.terminal.remarks import progress, say
from torusrun.orchestrator.remote.links.host import BadAnswer, HostRefused, LinkLost, LoginHost, Unanswered
from torusrun.orchestrator.remote.session import Session, received

Take = Callable[[bytes], object]
Kind = TypeVar("Kind")
LOOKS_S = 2.0
USUAL = repeat(LOOKS_S)
EMPTY_S = 0.02  # pause after an empty answer: one that came at once must not cause a busy loop
LONGEST_S = 2 * 3600.0  # for an answer: a submission may build an image first
QUIET_S = 30.0  # then the user learns that an answer is awaited
LARGEST_BYTES = 64 << 20  # of an answer, which may hold all metrics of a run


@dataclass(frozen=True)
class NewOutput:
    """The numbers of new bytes of a call's output and of its errors, and its exit code if it has ended."""

    out: int
    err: int
    exit: int | None
    gone: bool


class Gathered:
    """Collects the output of a call. Raises BadAnswer if it is too much."""

    def __init__(self, host: LoginHost) -> None:
        self._host, self.content = host, bytearray()

    def __call__(self, data: bytes) -> None:
        if len(self.content) + len(data) > LARGEST_BYTES:
            raise BadAnswer(f"{self._host.address}: its answer is larger than {LARGEST_BYTES:,} bytes")
        self.content += data


def call(
    link: Session, request: Mapping[str, Any], out: Take, err: Take, name: str = "", waits: Iterator[float] = USUAL
) -> int:
    """Run a request on the login node and pass on its output as it arrives. Returns its exit code.

    A request with an `argv` is `python -m ARGV...`, any other one an action of login_node/actions.py. A call with a
    `name` is kept there: the same name starts no second call. `err` gets its standard error. `waits` has for each
    question the seconds that the login node may wait for output.
    Raises Gone if the call is gone, LinkLost if the link is, BadAnswer for impossible answers.
    """
    kept, name = bool(name), name or secrets.token_hex(12)
    link.ask({"ask": "start", "call": name}, json.dumps(request).encode())
    try:
        code = _read(link, name, out, err, waits)
    except (LinkLost, HostRefused):
        raise
    except BaseException:  # such as Ctrl-C, or that nobody reads our output any more
        with contextlib.suppress(SiteError):
            link.ask({"ask": "stop", "call": name})
        raise
    if not kept:
        link.ask({"ask": "forget", "call": name})
    return code


def _read(link: Session, name: str, out: Take, err: Take, waits: Iterator[float]) -> int:
    """Pass on the output of a call until its end. Returns its exit code."""
    out_at = err_at = 0
    for wait_s in waits:
        answer, data = link.ask({"ask": "read", "call": name, "out": out_at, "err": err_at, "wait_s": wait_s})
        new = _new(link.host, answer, data)
        out_at, err_at = out_at + new.out, err_at + new.err
        out(data[: new.out])
        err(data[new.out :])
        if data:
            continue
        if new.gone:
            break
        if new.exit is not None:
            return new.exit
        time.sleep(EMPTY_S)
    raise Gone(f"{link.host.address}: the process there is gone; perhaps the login node was restarted")


def _new(host: LoginHost, answer: dict[str, Any], data: bytes) -> NewOutput:
    """The content of an answer to `read`. Raises BadAnswer if its numbers do not fit together."""
    new = received(host, NewOutput, answer)
    if min(new.out, new.err) < 0 or new.out + new.err != len(data) or not 0 <= (new.exit or 0) < 256:
        raise BadAnswer(f"{host.address}: its answer contradicts itself: {new}, and {len(data)} bytes")
    return new


class Gone(Unanswered):
    """The call ended without an exit code."""


def answer(
    link: Session,
    request: Mapping[str, Any],
    kind: type[Kind],
    name: str = "",
    *,
    text: Callable[[str], str] = plain,
    within_s: float = LONGEST_S,
) -> Kind:
    """The answer of the login node to a request, as a value of this kind. Its remarks are printed.

    An answer with a `name` is kept there, so that a second request finds it. `text` is applied to every string of the
    answer. Raises UserError or SiteError with the reported problem, Unanswered if there is no such answer.
    """
    out, err = Gathered(link.host), Gathered(link.host)
    code = call(link, request, out, err, name, _waiting(link.host, within_s))
    said = err.content.decode(errors="replace").strip()
    if code:
        error: type[TorusrunError] = UserError if code == USER_MISTAKE else SiteError
        raise error(f"{link.host.address}: {said.removeprefix('torusrun: ') or f'it ended with exit code {code}'}")
    if said:
        progress(private.plain(said))
    return received(link.host, kind, out.content, text)


def _waiting(host: LoginHost, within_s: float) -> Iterator[float]:
    """The waits for `call`. Raises Unanswered after `within_s`, and before that says that it waits."""
    began_s, quiet = time.monotonic(), True
    while (waited_s := time.monotonic() - began_s) <= within_s:
        if quiet and waited_s > QUIET_S:
            quiet = False
            say(f"{host.address} is at work and has not answered yet")
        yield LOOKS_S
    raise Unanswered(f"{host.address}: it has not answered within {within_s:g} s")


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
