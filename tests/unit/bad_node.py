"""A login node that answers badly: as a process, or as a link whose other end a test writes.

As a process (`python bad_node.py ANSWERS.json`) it has the answer to each kind of question as text: SILENCE to say
nothing any more, with FLOOD before it to say it again and again.
"""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

MARK = "torusrun: ready\n"
SILENCE, FLOOD = "silence", "flood:"


def frame(payload: bytes = b"", **header: Any) -> str:
    return json.dumps({**header, "bytes": len(payload)}) + "\n" + payload.decode("latin-1")


def wrote(content: bytes, exit_code: int | None = 0) -> str:
    """The answer to `read` of a call that has written this."""
    return frame(content, out=len(content), err=0, exit=None if content else exit_code, gone=False)


BOOT = MARK + frame(missing=[]) + frame(installed=[])


class Replay:
    """A link to nobody: `answer` says what comes for each question and its payload. `read_bytes` counts what did.

    After `most` questions it is silent.
    """

    def __init__(self, answer: Callable[[dict[str, Any], bytes], str], boot: str = BOOT, most: int = 40) -> None:
        self._answer, self._boot, self._left, self.read_bytes = answer, boot, most, 0
        self._coming = bytearray()

    def send(self, data: bytes) -> None:
        from torusrun.orchestrator.remote.links.frames import Unpacker

        said = self._boot
        if not self._boot:
            said = self._answer(*Unpacker(lambda: data).frame()) if self._left > 0 else ""
            self._left -= 1
        self._boot = ""
        self._coming += said.encode("latin-1", "replace")

    def receive(self) -> bytes:
        from torusrun.orchestrator.remote.links.host import LinkLost

        data = bytes(self._coming[: 1 << 16])
        del self._coming[: 1 << 16]
        self.read_bytes += len(data)
        if not data:
            raise LinkLost("nobody@nowhere: no answer")
        return data

    def interact(self, command: str, *, terminal: bool, streams: object = None) -> int:
        return 0

    def close(self) -> None:
        pass


def command(answers: dict[str, str], folder: Path) -> str:
    """The command that is such a login node."""
    (folder / "answers.json").write_text(json.dumps(answers))
    return shlex.join([sys.executable, __file__, str(folder / "answers.json")])


def _serve(answers: dict[str, str]) -> None:
    reads, out = sys.stdin.buffer, sys.stdout.buffer
    reads.read(int(reads.readline()))
    reads.readline()
    _say(answers.get("boot", BOOT), reads, out)
    while line := reads.readline():
        question = json.loads(line)
        reads.read(question["bytes"])
        _say(answers.get(question["ask"], frame()), reads, out)


def _say(answer: str, reads: IO[bytes], out: IO[bytes]) -> None:
    if answer == SILENCE:
        reads.read()
        sys.exit()
    while True:
        out.write(answer.removeprefix(FLOOD).encode("latin-1"))
        out.flush()
        if not answer.startswith(FLOOD):
            return


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with open(sys.argv[1]) as file:
        _serve(json.load(file))
