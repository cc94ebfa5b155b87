"""Start a script as a session of its own and print its job id: what `sbatch` is to Slurm, for this machine.

`python -m orchestrator.schedulers.detach SCRIPT [JOB_ID...]`: it begins when these jobs are gone. Its output goes to
job.out and job.err beside the script.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.schedulers.local import job_id_of


def main() -> None:
    script, awaited = Path(sys.argv[1]), sys.argv[2:]
    begin = [sys.executable, "-m", "orchestrator.schedulers.begin", str(script), *awaited]
    with open(script.parent / "job.out", "ab") as out, open(script.parent / "job.err", "ab") as err:
        job = subprocess.Popen(
            begin if awaited else ["bash", str(script)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
    print(job_id_of(Path(f"/proc/{job.pid}/stat").read_text()))


if __name__ == "__main__":
    main()
