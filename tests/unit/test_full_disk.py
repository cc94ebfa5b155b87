"""A disk that is full while a run is at work: how it ended is recorded all the same, and hangs are found."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import machine
from tests.unit.clock import Clock
from tests.unit.run_folders import write_specs
from tests.unit.test_hang_watch import Job
from tests.unit.test_sweeps import LATER_S, TAKES, Cluster
from tests.waiting import until
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job import own_run
from torusrun.orchestrator.job.hangs import hang_watch
from torusrun.orchestrator.job.hangs.patience import WORK_S
from torusrun.orchestrator.job.recorded import recorded
from torusrun.orchestrator.run.attempts import create, submit
from torusrun.orchestrator.run.folder import index, ledger
from torusrun.orchestrator.run.folder.events import Ended, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import RESERVED_BYTES, End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import attempt_plan
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers import spawn

FULL = "the disk that holds the run is full: free space and resume"


@pytest.fixture
def disk(home: Path) -> Iterator[Path]:
    """A small file system for runs, and nothing else."""
    if why := machine.why_not("mount"):
        pytest.skip(why)
    (home / "runs").mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", home / "runs"], check=True, timeout=240
    )
    try:
        yield home / "runs"
    finally:
        subprocess.run(["umount", "--lazy", home / "runs"], check=True, timeout=240)


def submitted(home: Path, python: str) -> RunFolder:
    """A run on this machine, whose job starts this program in place of the supervisor."""
    spec = write_specs(home)
    at_submit = 'case "$*" in *find_spec*) exit;; esac'  # the look for packages
    (home / "python").write_text(f"#!/bin/sh\n{at_submit}\n{python}\n")
    run = submit.first(plan(spec), home)
    until(run.attempt(1).stderr.exists, "the job to begin")
    until(lambda: views([run])[0].state not in (State.RUNNING, State.UNKNOWN), "the job to end")
    return run


def fill(disk: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        (disk / "fill").write_bytes(bytes(10**6))


def test_the_supervisor_records_an_end_on_a_full_disk(home: Path, disk: Path) -> None:
    run = create.run(attempt_plan.first(plan(write_specs(home))), home, "true\n", Submitting(1, name="made"))

    def work() -> End:
        fill(disk)
        return End(State.FAILED, "ranks 0, 1 left no record of an end: " + "é" * RESERVED_BYTES)

    recorded(run, run.attempt(1), work)
    view = views([run])[0]
    assert view.state is State.FAILED and view.reason.startswith(f"{FULL}; ranks 0, 1 left no record"), view
    (disk / "fill").unlink()
    assert views([run])[0].reason.startswith(FULL), "the cause stays on record once there is room again"
    assert not list(run.attempt(1).folder.glob(".end*"))


def test_the_script_records_an_end_on_a_full_disk(home: Path, disk: Path) -> None:
    run = submitted(home, f"cat /dev/zero > {disk}/fill; exit 3")
    view = views([run])[0]
    assert view.state is State.FAILED, view
    assert view.reason.startswith(f"{FULL}; the supervisor of the attempt ended with exit code 3"), view
    assert not list(run.attempt(1).folder.glob(".end*"))


@pytest.mark.parametrize("free_bytes", [0, 4096])
def test_hangs_and_lost_hosts_are_found_although_the_disk_is_full(
    free_bytes: int, home: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no room for the answers of wrappers, or for one of four."""
    clock = Clock()
    monkeypatch.setattr(hang_watch, "time", clock)
    training = Job(plan(write_specs(home)), clock)
    heard, mute = training.attempt.rank_start(0), training.attempt.rank_start(2)
    for start in (heard, mute):
        start.write_text("{}")
    assert not list(training.looks(20, training.step))
    fill(disk)
    os.truncate(disk / "fill", (disk / "fill").stat().st_size - free_bytes)
    os.utime(mute, (1.0, 1.0))
    assert training.ended_s() <= 25 and training.end.hosts == ("n2",)
    training.step(30)
    os.utime(heard)
    os.utime(mute)
    assert WORK_S <= training.ended_s() <= WORK_S + 20 and training.end.cause is Cause.HANG


def test_a_job_waits_for_room_before_it_makes_the_next_attempt(
    home: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Freed(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.now_s >= 1200.0:
                (disk / "fill").unlink()

    def waited_s(until_s: float = 9e9, asked_s: float = 0.0) -> float:
        clock = Freed()
        monkeypatch.setattr(own_run, "time", clock)
        fill(disk)
        job = object.__new__(own_run.OwnRun)  # it would handle this process's signals
        job.run, job.plan, job.until_s, job.asked_s = run, planned, until_s, asked_s
        job._wait_for_room()
        (disk / "fill").unlink(missing_ok=True)
        return clock.now_s - 1000.0

    planned = plan(write_specs(home))
    run = create.run(attempt_plan.first(planned), home, "true\n", Submitting(1, name="made"))
    assert waited_s() == 200.0 and capsys.readouterr().out.count(FULL) == 1
    assert waited_s(asked_s=1.0) == 0.0, "a job that is asked to end does not wait"
    assert waited_s(until_s=1100.0 + planned.stop_before_s) == 100.0, "nor one whose time is up"
    assert not list(run.folder.glob(".room*"))


def test_no_program_of_a_job_is_ended_by_output_that_is_lost() -> None:
    job = Path(own_run.__file__).parent
    programs = [
        file.read_text() for file in (*job.rglob("*.py"), Path(spawn.__file__)) if file.name != "beside_rank.py"
    ]
    mains = [text for text in programs if '__name__ == "__main__"' in text]
    assert len(mains) > 4 and all("\n    never_fail()\n" in text for text in mains), "beside a rank, a user sees it"


class FillsTheDisk(Cluster):
    """A Slurm that accepts a job; then the disk is full, and no ledger has room for another line."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(home, monkeypatch)
        full = f"""for ledger in $(find {home}/runs -name ledger.jsonl); do
  printf "%$((4095 - $(wc -c < "$ledger")))s\\n" "" >> "$ledger"; done
cat /dev/zero > {home}/runs/fill 2> /dev/null
"""
        before, _, prints = TAKES.replace("$JOBS", str(self.file)).rstrip().rpartition("\n")
        self.program("sbatch", f"{before}\n{full}{prints}")


def test_a_job_that_was_accepted_on_a_full_disk_is_found_by_its_name(
    home: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FillsTheDisk(home, monkeypatch)
    with pytest.raises(NoAnswer, match="accepted job 1, which cannot be recorded: .* do not submit it again"):
        submit.first(plan(home / "run.yaml"), home)
    (disk / "fill").unlink()
    (view,) = views(index.runs(), time.time() + LATER_S, fresh=True)
    assert (view.state, view.job) == (State.PENDING, "1") and len(cluster.jobs) == 1


def test_an_array_that_was_accepted_on_a_full_disk_is_found_by_its_name(
    home: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FillsTheDisk(home, monkeypatch)
    cluster.site("largest_array: 2")
    with pytest.raises(NoAnswer, match="accepted job 1_0, which cannot be recorded: .* do not submit it again"):
        cluster.submit("env.X=1,2,3")
    (disk / "fill").unlink()
    seen = views(index.runs(), time.time() + LATER_S, fresh=True)
    assert [(view.state, view.job) for view in seen[:2]] == [(State.PENDING, "1_0"), (State.PENDING, "1_1")]
    assert seen[2].state in (State.LOST, State.FAILED), "the third was not submitted any more"
    assert len(cluster.jobs) == 1, "nothing is submitted twice"


def test_with_room_no_reserve_is_left(home: Path) -> None:
    run = submitted(home, "exit 3")
    assert views([run])[0].reason.startswith("the supervisor of the attempt ended with exit code 3")
    assert not list(run.attempt(1).folder.glob(".end*"))


def test_an_end_that_is_known_is_not_blamed_on_a_disk_that_is_full_later(
    home: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that keeps going, whose jobs are over: there is no room to note that."""
    run = create.run(attempt_plan.first(plan(write_specs(home))), home, "true\n", Submitting(1, name="m", jobs=2))
    ledger.append(run.ledger, Submitted(1, job="7", scheduler="local"))
    ledger.append(run.ledger, Ended(1, State.FAILED, "rank 1 was killed", Cause.KILLED))
    fill(disk)
    view = views([run])[0]
    assert (view.state, view.cause, view.reason) == (State.FAILED, "killed", "rank 1 was killed")
