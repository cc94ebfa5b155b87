"""Waits until other local jobs have ended, then becomes the script: this machine's form of a dependency.

`orchestrator.schedulers.local.begin SCRIPT TOKEN JOB_ID...`. The process keeps its pid and so its job id. While it
waits, its name is the one by which `sessions.py` recognises a pending job.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from pathlib import Path

from torusrun.orchestrator.schedulers.local.sessions import WAITING, found

POLL_S = 0.2
PR_SET_NAME = 15  # <linux/prctl.h>


def main() -> None:
    script, token, *awaited = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_NAME, WAITING.encode())
    while any(_lives(job_id) for job_id in awaited):
        time.sleep(POLL_S)
    os.execvp("bash", ["bash", script, token])


def _lives(job_id: str) -> bool:
    """Whether a process of the job lives. While its first one does, no other has to be looked at."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{job_id.partition('.')[0]}/stat").read_text(errors="replace").replace("\n", " ")
        if found(stat, [job_id]):
            return True
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that has just ended
            stats.append(path.read_text(errors="replace").replace("\n", " "))
    return bool(found("\n".join(stats), [job_id]))


if __name__ == "__main__":
    main()
