"""A task of a sweep's array: becomes the script of the attempt that has the task's number.

`orchestrator.job.member ARRAY_FOLDER SCHEDULER`. The script redirects its own output, loads the site's modules and
records its end, as it does in a job of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.folder.sweep_folder import ArrayFolder
from torusrun.training.reporting.output import never_fail


def main() -> None:
    try:
        attempt = _of_this_task(ArrayFolder(Path(sys.argv[1])), schedulers.get(sys.argv[2]).own_task(os.environ))
    except TorusrunError as error:
        sys.exit(f"torusrun: {error}")
    process.die_with_parent(signal.SIGKILL)  # the array's script; the supervisor then ends its own processes
    name = f"{attempt.folder.parents[1].name}.{attempt.number}"
    os.execv("/bin/bash", ["bash", str(attempt.script), name])


def _of_this_task(array: ArrayFolder, task: int | None) -> Attempt:
    """The attempt with the number of this task. Raises SiteError if there is none."""
    attempts = array.read()
    if task is None or task >= len(attempts):
        raise SiteError(f"{array.attempts}: it has {len(attempts)} attempts, and none for task {task}")
    return attempts[task]


if __name__ == "__main__":
    never_fail()
    main()
