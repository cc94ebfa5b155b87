"""The standby of a run that keeps going, on this machine. test_keep_going.py has it on clusters, too."""

import json
import os
import signal
from pathlib import Path
from random import Random

from tests.e2e.places import LONG, TWO_RANKS, Local, ledger, metrics, until
from torusrun.orchestrator.base import proc

STANDBY = (*LONG, *TWO_RANKS, "--set", "keep_going={attempts: 2, standby: true, without_progress: 9}")
STEPS = ("--set", "train.checkpoint_every_steps=1000000")  # each attempt repeats the steps of the one before


def waiting(run: Path, attempt: int) -> list[dict[str, int]]:
    """The programs that wait for the attempt after this one, once all of them do."""
    folder = run / f"attempts/{attempt}/ranks"
    until(lambda: len([*folder.glob("*.standby.json")]) == 2, f"the standby beside attempt {attempt}", 240)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.standby.json"))]


def kill_rank(run: Path, attempt: int, chance: Random) -> None:
    path = run / f"attempts/{attempt}/ranks/{chance.randrange(2):04d}.start.json"
    os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)


def losses(run: Path, attempt: int) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in metrics(run, "step") if row["attempt"] == attempt}


def compared(run: Path, attempt: int) -> None:
    until(lambda: len(losses(run, attempt)) > 20, f"20 steps of attempt {attempt}")


def test_an_attempt_from_the_standby_and_one_without_have_the_same_bits(local: Local, chance: Random) -> None:
    run = local.submit(*STANDBY, *STEPS)
    waiting(run, 1)
    compared(run, 1)
    kill_rank(run, 1, chance)
    ready = waiting(run, 2)
    compared(run, 2)
    launchers = {process.parent for process in local.processes(run) if process.pid in {r["wrapper"] for r in ready}}
    os.kill(chance.choice(ready)["wrapper"], signal.SIGKILL)  # its launcher ends the other one
    until(lambda: all(proc.state_of(launcher) in ("", "Z") for launcher in launchers), "the standby to end")
    kill_rank(run, 2, chance)
    compared(run, 3)
    assert [event.get("standby", False) for event in ledger(run, "started")] == [False, True, False]
    first, *others = (losses(run, attempt) for attempt in (1, 2, 3))
    for other in others:
        both = first.keys() & other.keys()
        assert len(both) > 20 and [first[step] for step in both] == [other[step] for step in both]
    assert local.torusrun("cancel", run.name).returncode == 0
    assert local.watch(run).returncode == 1
    until(lambda: not local.processes(run), "all processes of the run to end")


def test_if_the_job_is_killed_its_standby_ends_too(local: Local) -> None:
    run = local.submit(*STANDBY)
    waiting(run, 1)
    (jobs,) = (process for process in local.processes(run) if process.module == "torusrun.orchestrator.job.keep_going")
    os.kill(jobs.pid, signal.SIGKILL)
    until(lambda: not local.processes(run), "all processes of the run to end")
