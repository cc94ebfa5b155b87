"""The side of a session on the login node: answers questions until the session ends.

Every question may be repeated, since an answer can be lost with the link. A repetition has no second effect.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import IO, Any

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.remote.links.frames import Frame, Unpacker, packed
from torusrun.orchestrator.remote.login_node import calls, on_terminal, store
from torusrun.orchestrator.remote.login_node.watching import watching

IDLE_S = 600  # then a session without a peer ends by itself
READ_BYTES = 1 << 16


def serve(reads: IO[bytes], out: IO[bytes]) -> None:
    """Answer until there are no more questions."""
    calls.clean()
    unpacker = Unpacker(lambda: _some(reads))
    while True:
        signal.alarm(IDLE_S)
        try:
            answer, payload = _answered(*unpacker.frame())
        except EOFError:
            return
        out.write(packed(answer, payload))
        out.flush()


def _some(reads: IO[bytes]) -> bytes:
    data: bytes = reads.read1(READ_BYTES)  # type: ignore[attr-defined]
    if not data:
        raise EOFError
    return data


def _answered(question: dict[str, Any], payload: bytes) -> Frame:
    values = {key: value for key, value in question.items() if key not in ("ask", "bytes")}
    try:
        if take := TAKE_CONTENT.get(question["ask"]):
            take(**values, content=payload)
            return {}, b""
        return ANSWER[question["ask"]](**values) or ({}, b"")
    except TorusrunError as error:
        return {"error": str(error)}, b""
    except OSError as error:
        return {"error": f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)}, b""


TAKE_CONTENT: dict[str, Callable[..., None]] = {"keep": store.keep, "start": calls.start}
ANSWER: dict[str, Callable[..., Frame | None]] = {
    "missing": lambda sha256s: ({"missing": store.missing(sha256s)}, b""),
    "command": lambda words: ({"command": on_terminal.command(words)}, b""),
    "look": lambda runs, wanted, wait_s: ({}, watching(tuple(runs)).news(wanted, wait_s)),
    "fetch": lambda call, file, at: ({}, calls.fetch(call, file, at)),
    "read": calls.read,
    "stop": calls.stop,
    "forget": calls.forget,
}
