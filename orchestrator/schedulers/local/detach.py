"""Starts a script in its own session and prints its job id: the submit command of this machine.

`orchestrator.schedulers.local.detach SCRIPT OUT ERR TOKEN [JOB_ID...]`: the script begins when these jobs have ended,
and writes into the files OUT and ERR. TOKEN is an argument of the script, by which `pgrep` finds it. The umask is the
caller's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import safe
from torusrun.orchestrator.schedulers.local.sessions import job_id_of


def main() -> None:
    (script, output, errors), token, awaited = map(Path, sys.argv[1:4]), sys.argv[4], sys.argv[5:]
    begin = process.module(sys.executable, "torusrun.orchestrator.schedulers.local.begin", script, token, *awaited)
    with _appended(output) as out, _appended(errors) as err:
        job = subprocess.Popen(
            begin if awaited else ["bash", str(script), token],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, env=safe(os.environ),
        )  # fmt: skip
    print(job_id_of(Path(f"/proc/{job.pid}/stat").read_text()))


def _appended(path: Path) -> IO[bytes]:
    return open(private.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, private.READABLE), "ab")


if __name__ == "__main__":
    main()
