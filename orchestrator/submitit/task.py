"""Runs the function of a submitit job by submitit's own entry: `orchestrator.submitit.task FOLDER`."""

from __future__ import annotations

import os
import signal
import sys

from submitit import JobEnvironment
from submitit.core.submission import submitit_main


def main() -> None:
    sys.path.append(os.getcwd())  # last: a user's module is found here, but does not replace a library's
    try:
        submitit_main()
    finally:  # Python removes its handlers while it ends: then a warning would kill a task that is done
        signal.signal(JobEnvironment()._usr_sig(), signal.SIG_IGN)


if __name__ == "__main__":
    main()
