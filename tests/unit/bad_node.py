"""A login node that answers badly: a program of this machine, which says what a test wants to each request."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

MARK = "torusrun: ready\n"
READY = MARK + json.dumps({"folder": "/far", "missing": False}) + "\n"
SILENCE, FLOOD = "silence", "flood:"  # instead of an answer: none at all; before it: again and again
OTHERS = "others"  # the answer to requests that have none of their own


def argv(answers: dict[str, str | tuple[str, int]], folder: Path) -> list[str]:
    """The program that answers so, by a verb or another kind of request: what it prints, and its exit code.

    Without READY before it an answer comes in the place of the first words of a login node. Its requests are in
    `requests` of the folder.
    """
    folder.mkdir(exist_ok=True)
    (folder / "answers.json").write_text(json.dumps(answers))
    return [sys.executable, __file__, str(folder)]


def asked(folder: Path) -> list[dict[str, Any]]:
    """The requests that such a program has read."""
    file = folder / "requests"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _answer(folder: Path) -> int:
    reads, out = sys.stdin.buffer, sys.stdout.buffer
    reads.read(int(reads.readline()))
    request = json.loads(line := reads.readline())
    with (folder / "requests").open("ab") as file:
        file.write(line)
    answers = json.loads((folder / "answers.json").read_text())
    what = request["words"][0] if request["do"] == "verb" else request["do"]
    answer = answers.get(what, answers.get(OTHERS, READY))
    text, code = answer if isinstance(answer, list) else (answer, 0)
    if text == SILENCE:
        reads.read()
        return 0
    while True:
        out.write(text.removeprefix(FLOOD).encode("utf-8", "surrogatepass"))
        out.flush()
        if not text.startswith(FLOOD):
            return int(code)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(_answer(Path(sys.argv[1])))
