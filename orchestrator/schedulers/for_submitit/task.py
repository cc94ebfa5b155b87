"""One task of a submitit job: its output goes to a log of its own, then submitit's entry runs the function.

`orchestrator.schedulers.for_submitit.task FOLDER`. Task 0 writes where the job's script already does.
"""

from __future__ import annotations

import os
import signal
import sys

from submitit import JobEnvironment
from submitit.core import utils
from submitit.core.submission import submitit_main


def main() -> None:
    sys.path.append(os.getcwd())  # last: a user's own module is found here, but none in a library's place
    env = JobEnvironment()
    if env.global_rank:
        paths = utils.JobPaths(sys.argv[1], env.job_id, env.global_rank)
        for stream, path in ((sys.stdout, paths.stdout), (sys.stderr, paths.stderr)):
            log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(log, stream.fileno())
    try:
        submitit_main()
    finally:  # while Python ends, it takes its handlers away: a warning that comes then would kill a task that is done
        signal.signal(env._usr_sig(), signal.SIG_IGN)


if __name__ == "__main__":
    main()
