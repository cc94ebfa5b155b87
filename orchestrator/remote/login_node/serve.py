"""The other side of a session, on the login node: answers questions until the session ends.

Every question may be asked twice, since an answer can be lost with the link: nothing happens a second time.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import IO, Any

from orchestrator.base.errors import TorusrunError
from orchestrator.remote.links.frames import Frame, Unpacker, packed
from orchestrator.remote.login_node import calls, store

IDLE_S = 600  # a session whose other end is gone ends by itself
READ_BYTES = 1 << 16

Answer = tuple[dict[str, Any], bytes]


def serve(reads: IO[bytes], out: IO[bytes]) -> None:
    """Answer until there are no more questions."""
    calls.clean()
    unpacker = Unpacker(lambda: _some(reads))
    while True:
        signal.alarm(IDLE_S)
        try:
            answer, payload = _answered(unpacker.frame())
        except EOFError:
            return
        out.write(packed(answer, payload))
        out.flush()


def _some(reads: IO[bytes]) -> bytes:
    data: bytes = reads.read1(READ_BYTES)  # type: ignore[attr-defined]
    if not data:
        raise EOFError
    return data


def _answered(frame: Frame) -> Answer:
    question, payload = frame
    try:
        return QUESTIONS[question["ask"]](question, payload)
    except TorusrunError as error:
        return {"error": str(error)}, b""
    except OSError as error:
        return {"error": f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)}, b""


def _missing(question: dict[str, Any], payload: bytes) -> Answer:
    return {"missing": store.missing(question["sha256s"])}, b""


def _keep(question: dict[str, Any], payload: bytes) -> Answer:
    store.keep(question["sha256"], question["at"], question["last"], payload)
    return {}, b""


def _start(question: dict[str, Any], payload: bytes) -> Answer:
    calls.start(question["call"], question["argv"], payload)
    return {}, b""


def _prepare(question: dict[str, Any], payload: bytes) -> Answer:
    return {"command": calls.prepare(question["call"], question["words"])}, b""


def _read(question: dict[str, Any], payload: bytes) -> Answer:
    return calls.read(question["call"], question["out"], question["err"], question["wait_s"])


def _tell(question: dict[str, Any], payload: bytes) -> Answer:
    calls.tell(question["call"], question["text"])
    return {}, b""


def _stop(question: dict[str, Any], payload: bytes) -> Answer:
    calls.stop(question["call"])
    return {}, b""


def _forget(question: dict[str, Any], payload: bytes) -> Answer:
    calls.forget(question["call"])
    return {}, b""


def _fetch(question: dict[str, Any], payload: bytes) -> Answer:
    return {}, calls.fetch(question["call"], question["file"], question["at"])


QUESTIONS: dict[str, Callable[[dict[str, Any], bytes], Answer]] = {
    "missing": _missing,
    "keep": _keep,
    "start": _start,
    "prepare": _prepare,
    "read": _read,
    "tell": _tell,
    "stop": _stop,
    "forget": _forget,
    "fetch": _fetch,
}
