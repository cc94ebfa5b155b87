"""Runs one task of a submitit job: sends its output to its own log, then lets submitit's entry run the function.

`orchestrator.submitit.task FOLDER`. Task 0 writes to the log of the job's script.
"""

from __future__ import annotations

import os
import signal
import sys

from submitit import JobEnvironment
from submitit.core import utils
from submitit.core.submission import submitit_main


def main() -> None:
    sys.path.append(os.getcwd())  # last: a user's module is found here, but does not replace a library's
    env = JobEnvironment()
    if env.global_rank:
        paths = utils.JobPaths(sys.argv[1], env.job_id, env.global_rank)
        for stream, path in ((sys.stdout, paths.stdout), (sys.stderr, paths.stderr)):
            log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(log, stream.fileno())
    try:
        submitit_main()
    finally:  # Python removes its handlers while it ends: then a warning would kill a task that is done
        signal.signal(env._usr_sig(), signal.SIG_IGN)


if __name__ == "__main__":
    main()
