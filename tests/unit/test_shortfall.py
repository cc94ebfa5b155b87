"""Grid Engine gave fewer slots than the ranks use cores: an attempt that fails says so."""

import os
import subprocess
import sys
from pathlib import Path

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts.script import script
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.plan import plan

SITE = """scheduler: gridengine
launcher: mpirun
ask: ["-pe mpi {{ranks}}"]
node: {{ranks: 4, cpus_per_rank: 10}}
runs: {home}/runs
"""


def ended(home: Path, slots: int) -> End:
    """The end of an attempt on 4 hosts with this many slots, where there is no mpirun; its ranks use 160 cores."""
    (home / "site.yaml").write_text(SITE.format(home=home))
    (home / "run.yaml").write_text("name: short\nsite: ./site.yaml\nnodes: 4\ncode: none\ncommand: [hostname]\n")
    hosts = (f"node{number} {slots // 4} gpu.q@node{number} UNDEFINED\n" for number in "1234")
    (home / "hosts").write_text("".join(hosts))
    first = AttemptPlan(1, plan(home / "run.yaml"))
    attempt = RunFolder(first.plan.folder).attempt(1)
    create.run(first, home, script(first, attempt), Submitting(1, first.plan.run_id))
    in_job = {"JOB_ID": "7", "NSLOTS": str(slots), "NHOSTS": "4", "PE_HOSTFILE": str(home / "hosts"), "PATH": str(home)}
    subprocess.run(
        [sys.executable, "-m", "torusrun.orchestrator.job.attempt", str(attempt.folder)],
        env={**os.environ, **in_job}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    end = End.read(attempt.end)
    assert end
    return end


def test_a_failed_attempt_says_that_it_got_too_few_slots(home: Path) -> None:
    end = ended(home, 16)
    assert end.state is State.FAILED and end.reason.startswith("mpirun: not found on this machine")
    assert "; Grid Engine gave 16 slots, and the ranks use 160 cores" in end.reason
