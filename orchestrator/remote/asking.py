"""A call from this side: it is started once, and read to its end through whatever link there is."""

from __future__ import annotations

import codecs
import contextlib
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from orchestrator import private
from orchestrator.errors import USER_MISTAKE, SiteError, TorusrunError, UserError
from orchestrator.remote.session import Lasting

Take = Callable[[bytes], object]
LOOKS_S = 2.0


def call(
    link: Lasting,
    argv: list[str],
    request: Mapping[str, Any],
    out: Take,
    err: Take,
    name: str,
    between: Callable[[], float] = lambda: LOOKS_S,
) -> int:
    """Run `python -m ARGV...` on the login node and hand on what it writes, as it comes; its exit code.

    A call of the same name is not made twice. `between` is called before each question, and says for how many seconds
    the login node may wait for something to answer. `err` gets what it writes to its standard error.
    Raises Gone when the call is gone, LinkLost when the link is.
    """
    link.ask({"ask": "start", "call": name, "argv": argv}, json.dumps(request).encode())
    out_at = err_at = 0
    try:
        while True:
            wait_s = between()
            answer, data = link.ask({"ask": "read", "call": name, "out": out_at, "err": err_at, "wait_s": wait_s})
            out_at, err_at = out_at + answer["out"], err_at + answer["err"]
            if answer["out"]:
                out(data[: answer["out"]])
            if answer["err"]:
                err(data[answer["out"] :])
            if data:
                continue
            if answer["gone"]:
                raise Gone(f"{link.host.address}: what was begun there is gone, as after a restart of the login node")
            if answer["exit"] is not None:
                break
    except KeyboardInterrupt:
        with contextlib.suppress(SiteError):
            link.ask({"ask": "stop", "call": name})
        raise
    return int(answer["exit"])


class Gone(SiteError):
    """The call ended without an exit code."""


def answer(link: Lasting, request: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """What `there` answers to a request; what it says on the way is shown.

    What is named is kept there, so that it is found when it is asked for again. Raises UserError or SiteError with what
    it says is wrong.
    """
    kept, name = bool(name), name or secrets.token_hex(12)
    out, err = bytearray(), bytearray()
    code = call(link, ["orchestrator.remote.there.actions"], request, out.extend, err.extend, name)
    if not kept:
        link.ask({"ask": "forget", "call": name})
    said = err.decode(errors="replace").strip()
    if code:
        error: type[TorusrunError] = UserError if code == USER_MISTAKE else SiteError
        raise error(f"{link.host.address}: {said.removeprefix('torusrun: ') or f'it ended with exit code {code}'}")
    if said:
        print(private.plain(said), file=sys.stderr)
    found: dict[str, Any] = json.loads(out)
    return found


def verb(link: Lasting, argv: list[str]) -> int:
    """Run a verb on the login node as if it ran here; its exit code."""
    name = secrets.token_hex(12)
    code = call(link, ["orchestrator", *argv], {}, shown(sys.stdout), shown(sys.stderr), name)
    link.ask({"ask": "forget", "call": name})
    return code


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A text in which each of these paths has its other name."""
    for path, name in names.items():
        text = text.replace(path, name)
    return text


def shown(stream: IO[str]) -> Take:
    """What arrives in pieces, on a stream of ours; a character may arrive in two of them."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(data: bytes) -> None:
        stream.write(decoder.decode(data))
        stream.flush()

    return show
