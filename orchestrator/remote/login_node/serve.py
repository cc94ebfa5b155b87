"""The other side of a session, on the login node: answers questions until the session ends.

Every question may be asked twice, since an answer can be lost with the link: nothing happens a second time.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

from orchestrator.base import process
from orchestrator.base.errors import TorusrunError
from orchestrator.remote.links.frames import Frame, Unpacker, packed
from orchestrator.remote.login_node import calls, store
from orchestrator.remote.login_node.watching import watching

IDLE_S = 600  # a session whose other end is gone ends by itself
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


def _missing(sha256s: list[str]) -> Frame:
    return {"missing": store.missing(sha256s)}, b""


def _fetch(call: str, file: str, at: int) -> Frame:
    return {}, calls.fetch(call, file, at)


def _command(words: Sequence[str]) -> Frame:
    """The command that runs `torusrun WORDS...` on whatever terminal it is given: the same text in every shell."""
    encoded = base64.urlsafe_b64encode(json.dumps(words).encode()).decode()
    argv = process.module(sys.executable, "orchestrator.remote.interactive", encoded)
    return {"command": shlex.join(["env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}", *argv])}, b""


def _look(runs: list[str], wanted: int, wait_s: float) -> Frame:
    return {}, watching(tuple(runs)).news(wanted, wait_s)


TAKE_CONTENT: dict[str, Callable[..., None]] = {"keep": store.keep, "start": calls.start}
ANSWER: dict[str, Callable[..., Frame | None]] = {
    "missing": _missing,
    "command": _command,
    "read": calls.read,
    "look": _look,
    "fetch": _fetch,
    "stop": calls.stop,
    "forget": calls.forget,
}
