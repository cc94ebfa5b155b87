"""Watches over a call: `orchestrator.remote.login_node.calling FOLDER` starts its program and keeps its end.

It ends the program when it is asked to, and one that only tells (logs, watch) when nobody has read for a while.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from orchestrator.base import private, process
from orchestrator.base.errors import SITE_FAILED
from orchestrator.base.json_files import write_text

UNREAD_S = 1800.0
TELLS = ("logs", "watch", "status")
ACTIONS = "orchestrator.remote.login_node.actions"  # reads its request in the folder of the call
LOOKS_S = 0.05
KILLED_AFTER_S = 10.0


def main() -> None:
    folder = Path(sys.argv[1])
    lock = private.open_regular(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / ".lock").rename(folder / "lock")  # nobody sees it before it is held
    argv = json.loads((folder / "argv.json").read_text())
    argv += [str(folder)] if argv == [ACTIONS] else []
    with open(folder / "out", "ab") as out, open(folder / "err", "ab") as errors:
        program = process.start(
            process.module(sys.executable, *argv),
            environment={**process.login_environment(), "PYTHONUNBUFFERED": "1"},
            output=out, errors=errors, own_group=True, parent_death=signal.SIGTERM,
        )  # fmt: skip
        code = _watched(program, folder, unread=bool({*argv[:2]} & {*TELLS}))
    if folder.is_dir():
        write_text(folder / "exit", str(code if code >= 0 else SITE_FAILED))


def _watched(program: subprocess.Popen[bytes], folder: Path, *, unread: bool) -> int:
    """The exit code of the program, which is ended when that is asked for."""
    asked_s = None
    while True:
        try:
            return program.wait(LOOKS_S)
        except subprocess.TimeoutExpired:
            pass
        if asked_s is None and (_forgotten(folder, unread=unread) or (folder / "stop").exists()):
            asked_s = time.monotonic()
            os.killpg(program.pid, signal.SIGINT)
        elif asked_s is not None and time.monotonic() > asked_s + KILLED_AFTER_S:
            os.killpg(program.pid, signal.SIGKILL)


def _forgotten(folder: Path, *, unread: bool) -> bool:
    """Whether nobody asks for what the call writes any more."""
    try:
        read_s = (folder / "read").stat().st_mtime
    except FileNotFoundError:
        return True
    return unread and time.time() - read_s > UNREAD_S


if __name__ == "__main__":
    main()
