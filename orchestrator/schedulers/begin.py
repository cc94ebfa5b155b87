"""Wait for other local jobs to be gone, then become the script: what a dependency is on this machine.

`orchestrator.schedulers.begin SCRIPT JOB_ID...`. The process keeps its pid and so its job id; while it waits
it carries the name by which `local` tells a job that is pending.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

from orchestrator.schedulers.local import WAITING, job_id_of

POLL_S = 0.2
PR_SET_NAME = 15  # <linux/prctl.h>


def main() -> None:
    script, *awaited = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_NAME, WAITING.encode())
    while any(_lives(job_id) for job_id in awaited):
        time.sleep(POLL_S)
    os.execvp("bash", ["bash", script])


def _lives(job_id: str) -> bool:
    try:
        stat = Path(f"/proc/{job_id.partition('.')[0]}/stat").read_text()
    except OSError:
        return False
    return job_id_of(stat) == job_id and stat.rpartition(")")[2].split()[0] not in "ZX"


if __name__ == "__main__":
    main()
