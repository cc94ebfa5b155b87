"""The supervisor of the next attempt, started while an attempt runs: `orchestrator.job.standby.supervisor FOLDER`.

FOLDER is that of the attempt that runs. It starts ranks that wait (ready_ranks.py), and waits itself for the word of
the job (beside_attempt.py), which names the next attempt. Then it is the supervisor of that attempt, with these ranks,
or with others if they cannot begin. If the job closes the socket, all of them end.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from orchestrator.base import private, process
from orchestrator.base.errors import TorusrunError
from orchestrator.base.states import State
from orchestrator.job.standby.ready_ranks import ReadyRanks
from orchestrator.job.supervise import supervise
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.plan.plan_files import read_attempt

CHANNEL = "TORUSRUN_STANDBY"  # the variable with the descriptor of the socket
READY, TAKEN = b"ready", b"taken"
LARGEST_BYTES = 1 << 16


def main() -> None:
    process.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)
    os.umask(private.UMASK)
    attempt = Attempt(Path(sys.argv[1]))
    run = RunFolder(attempt.folder.parents[1])
    ranks = None
    try:
        plan = read_attempt(run, attempt.number).plan
        os.umask(plan.site.umask)
        ranks = ReadyRanks(plan, attempt)
        ranks.begin()
        if (word := _word(socket.socket(fileno=int(os.environ.pop(CHANNEL))))) is None:
            return
        following = run.attempt(word["attempt"])
        for ours, its in ((attempt.standby_stdout, following.stdout), (attempt.standby_stderr, following.stderr)):
            ours.rename(its)  # the output of the launcher, too
        os.chdir(following.folder)
        os.environ.update(word["variables"])
        print(f"torusrun: attempt {following.number} of {run.run_id}, job {word['job']}, from the standby", flush=True)
        end = supervise(run, following.number, word["job"], ranks)
    except (TorusrunError, OSError) as error:
        sys.exit(f"torusrun: {error}")
    finally:
        if ranks:
            ranks.end()
    if end.state is not State.COMPLETED:
        sys.exit(f"torusrun: {end.state.value}: {end.reason}")


def _word(channel: socket.socket) -> dict[str, Any] | None:
    """Wait for the word of the job; None if it needs no standby any more."""
    with channel:
        channel.send(READY)
        text = channel.recv(LARGEST_BYTES)
        if text:
            channel.send(TAKEN)
    return json.loads(text) if text else None


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
