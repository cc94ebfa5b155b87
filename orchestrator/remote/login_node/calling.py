"""The program of a call: `orchestrator.remote.login_node.calling FOLDER` runs its request and records its end.

It ends on request. A program that only reports (logs, watch) also ends if its output is not read for a while.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.json_files import write_text

UNREAD_S = 1800.0
REPORTS = {"logs", "watch"}
ACTIONS = "torusrun.orchestrator.remote.login_node.actions"
LOOKS_S = 0.1
KILLED_AFTER_S = 10.0


def main() -> None:
    folder = Path(sys.argv[1])
    lock = private.open_regular(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / ".lock").rename(folder / "lock")  # the lock appears only when it is held
    os.dup2(os.open(folder / "out", os.O_WRONLY | os.O_APPEND), sys.stdout.fileno())
    argv = json.loads((folder / "request.json").read_text()).get("argv") or [ACTIONS, str(folder)]
    threading.Thread(target=_end, args=(folder, bool(REPORTS & {*argv[:2]})), daemon=True).start()
    os.environ.update(process.login_environment())
    time.tzset()
    sys.argv = argv
    code = _run(argv[0])
    if folder.is_dir():
        write_text(folder / "exit", str(code))


def _run(module: str) -> int:
    """Run a module as `python -m` does. Returns its exit code."""
    try:
        runpy.run_module(module, None, "__main__", True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(folder: Path, reports: bool) -> None:
    """End this program and all that it started when a stop is requested, or a report is not read for UNREAD_S."""
    read_s = time.time()
    with contextlib.suppress(FileNotFoundError):  # the call was removed
        while not (folder / "stop").exists() and not (reports and time.time() - read_s > UNREAD_S):
            time.sleep(LOOKS_S)
            read_s = (folder / "read").stat().st_mtime
    os.killpg(0, signal.SIGINT)
    time.sleep(KILLED_AFTER_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
