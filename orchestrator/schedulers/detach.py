"""Start a script as a session of its own and print its job id: what `sbatch` is to Slurm, for this machine.

`python -m orchestrator.schedulers.detach SCRIPT`; output goes to job.out and job.err beside the script.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.schedulers.local import job_id_of


def main() -> None:
    script = Path(sys.argv[1])
    with open(script.parent / "job.out", "ab") as out, open(script.parent / "job.err", "ab") as err:
        job = subprocess.Popen(
            ["bash", str(script)], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    print(job_id_of(Path(f"/proc/{job.pid}/stat").read_text()))


if __name__ == "__main__":
    main()
