"""The supervisor of the next attempt, started while an attempt runs: `orchestrator.job.standby.supervisor FOLDER`.

FOLDER is that of the attempt that runs. It starts ranks that wait (ready_ranks.py), and waits itself for the word of
the job (beside_attempt.py), which names the next attempt. Then it is the supervisor of that attempt, with these ranks,
or with others if they cannot begin. If the job closes the socket, all of them end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.job.standby import word
from torusrun.orchestrator.job.standby.ready_ranks import ReadyRanks
from torusrun.orchestrator.job.supervise import supervise
from torusrun.orchestrator.planning.plan_files import read_attempt
from torusrun.training.reporting.output import never_fail


def main() -> None:
    process.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)
    os.umask(private.UMASK)
    attempt = Attempt(Path(sys.argv[1]))
    run = RunFolder(attempt.folder.parents[1])
    ranks, channel = None, word.channel()
    if channel is None:
        sys.exit("torusrun: this process has no job")
    try:
        plan = read_attempt(run, attempt.number).plan
        os.umask(plan.site.umask)
        ranks = ReadyRanks(plan, attempt)
        ranks.begin()
        with channel:
            if (found := word.awaited(channel)) is None:
                return
        following = run.attempt(found["attempt"])
        for ours, its in ((attempt.standby_stdout, following.stdout), (attempt.standby_stderr, following.stderr)):
            ours.rename(its)  # the output of the launcher, too
        os.chdir(following.folder)
        os.environ.update(found["variables"])
        print(f"torusrun: attempt {following.number} of {run.run_id}, job {found['job']}, from the standby", flush=True)
        end = supervise(run, following.number, found["job"], ranks)
    except (TorusrunError, OSError) as error:
        sys.exit(f"torusrun: {error}")
    finally:
        if ranks:
            ranks.end()
    if end.state is not State.COMPLETED:
        sys.exit(f"torusrun: {end.state.value}: {end.reason}")


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    never_fail()
    main()
