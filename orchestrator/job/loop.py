"""The program that every job's script starts: it begins attempts one after the other, as their source gives them.

`orchestrator.job.loop ATTEMPT_FOLDER`: the source is the run of this attempt (own_run.py), or the inbox of a held
allocation (inbox.py). With STEP CODE, a step of the script before it failed with this exit code: the attempt whose turn
it is gets that for its end.
`orchestrator.job.loop --task ARRAY_FOLDER SCHEDULER`: a task of a sweep's array becomes the script of its member.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import allocation
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.folder.sweep_folder import ArrayFolder
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.training.reporting.output import never_fail

TASK = "--task"


def main(words: Sequence[str]) -> int:
    """Run the job; its exit code."""
    os.umask(private.UMASK)
    try:
        if words[0] == TASK:
            _become(_of_task(ArrayFolder(Path(words[1])), schedulers.get(words[2]).own_task(os.environ)))
        attempt = Attempt(Path(words[0]))
        run = attempt.run
        plan = read_attempt(run, attempt.number).plan
        os.umask(plan.site.umask)
        if allocation.is_held(run):
            from torusrun.orchestrator.job.inbox import keep

            return 0 if keep(run, attempt, plan) is State.COMPLETED else 1
        from torusrun.orchestrator.job.own_run import OwnRun

        return 0 if OwnRun(run, attempt, plan).run_in_job(words[1:]) is State.COMPLETED else 1
    except TorusrunError as error:
        print(f"torusrun: {error}", file=sys.stderr, flush=True)
        return 1


def _become(attempt: Attempt) -> None:
    """Become the script of an attempt, which redirects its own output, and begins it as in a job of its own."""
    process.die_with_parent(signal.SIGKILL)  # the array's script; the supervisor then ends its own processes
    os.execv("/bin/bash", ["bash", str(attempt.script), f"{attempt.run.run_id}.{attempt.number}"])


def _of_task(array: ArrayFolder, task: int | None) -> Attempt:
    """The attempt with the number of this task. Raises SiteError if there is none."""
    attempts = array.read()
    if task is None or task >= len(attempts):
        raise SiteError(f"{array.attempts}: it has {len(attempts)} attempts, and none for task {task}")
    return attempts[task]


if __name__ == "__main__":
    never_fail()
    sys.exit(main(sys.argv[1:]))
