"""The program that runs one attempt of a run, started by its job. Its only argument is the attempt's folder.

`orchestrator.job.attempt ATTEMPT_FOLDER`. It exits with a failure unless the run completed.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import in_job
from torusrun.orchestrator.job.supervise import supervise
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.training.reporting.output import never_fail


def main() -> None:
    os.umask(private.UMASK)
    attempt = Attempt(Path(sys.argv[1]))
    run = RunFolder(attempt.folder.parents[1])
    try:
        site = read_attempt(run, attempt.number).plan.site
        own = in_job.read(attempt)
        job = own.name if own else schedulers.get(site.scheduler).own_name(os.environ)
    except TorusrunError as error:
        sys.exit(f"torusrun: {error}")
    os.umask(site.umask)
    print(f"torusrun: attempt {attempt.number} of {run.run_id}, job {job}, on {socket.gethostname()}", flush=True)
    end = supervise(run, attempt.number, job)
    if end.state is not State.COMPLETED:
        sys.exit(f"torusrun: {end.state.value}: {end.reason}")


if __name__ == "__main__":
    never_fail()
    main()
