"""A submission whose answer was lost: whether there is a job of its name, and which."""

import os
import pwd
import subprocess
import time
from pathlib import Path

from tests.unit.verbs import Patch
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine

RECORDED = Path(__file__).parent / "recorded" / "gridengine"
PLAN = """{{"schema": 1, "run": "{run}", "grid": [1, 1], "ranks": 1, "ranks_per_node": 1, "python": "python3",
"spec": {{"name": "x", "site": "x"}},
"site": {{"scheduler": "{scheduler}", "launcher": "srun", "command_timeout": "5s"}}}}"""
LATER_S = 60.0  # longer than a scheduler needs to show a job


def cut_off(folder: Path, scheduler: str) -> RunFolder:
    """A run whose client was killed while it asked the scheduler."""
    run = RunFolder(folder / "x-1")
    run.attempt(1).folder.mkdir(parents=True)
    run.plan.write_text(PLAN.format(run="x-1", scheduler=scheduler))
    ledger.append(run.ledger, Submitting(1, name="x-1"))
    return run


def stub(folder: Path, name: str, text: str, monkeypatch: Patch) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def test_a_job_with_the_runs_name_becomes_its_job(tmp_path: Path, monkeypatch: Patch) -> None:
    """Pending, so it has not told of itself yet."""
    run = cut_off(tmp_path, "slurm")
    stub(tmp_path, "squeue", 'case "$*" in *--name=x-1*) echo 71;; *) echo "71|PENDING|Priority|";; esac', monkeypatch)
    (view,) = views([run])
    assert view.state is State.UNKNOWN and "was cut off" in view.reason, "it may still be under way"
    (view,) = views([run], time.time() + LATER_S)
    assert (view.state, view.job) == (State.PENDING, "71")
    assert ledger.last(ledger.events(run.ledger), Submitted, 1), "what was found out is kept"


def test_an_array_with_the_runs_name_becomes_its_job(tmp_path: Path, monkeypatch: Patch) -> None:
    """Slurm lists its running task and its waiting ones apart: %i is a task's id, as 7_[1-19%1], %F the array's."""
    run = cut_off(tmp_path, "slurm")
    named = r'echo "$*" | grep -q "=%F$" && printf "7\n7\n" || printf "7_0\n7_[1-19%%1]\n"'
    listed = 'echo "7_0|RUNNING|None|node1"; echo "7_[1-19%1]|PENDING|JobArrayTaskLimit|"'
    stub(tmp_path, "squeue", f'case "$*" in *--name=x-1*) {named};; *) {listed};; esac', monkeypatch)
    for _ in range(2):
        (view,) = views([run], time.time() + LATER_S)
        assert (view.state, view.job) == (State.RUNNING, "7")
    assert [event.job for event in ledger.events(run.ledger) if isinstance(event, Submitted)] == ["7"], "noted once"


def test_another_users_job_with_that_name_is_ignored(tmp_path: Path, monkeypatch: Patch) -> None:
    """Names are seen by everybody; qselect tells of everybody's jobs unless it is given a user."""
    run = cut_off(tmp_path, "pbs")
    mine = f'case " $* " in *" -u {pwd.getpwuid(os.geteuid()).pw_name} "*) ;; *) echo 6.pbs1;; esac'
    stub(tmp_path, "qselect", mine, monkeypatch)
    (view,) = views([run], time.time() + LATER_S)
    assert view.state is State.LOST and "pbs has no job named 'x-1'" in view.reason


def test_where_there_is_no_such_job_the_attempt_is_lost_and_can_be_resumed(tmp_path: Path, monkeypatch: Patch) -> None:
    run = cut_off(tmp_path, "slurm")
    stub(tmp_path, "squeue", "exit 0", monkeypatch)
    (view,) = views([run], time.time() + LATER_S)
    assert view.state is State.LOST and "slurm has no job named 'x-1'" in view.reason


def test_a_scheduler_that_does_not_answer_leaves_it_unknown(tmp_path: Path, monkeypatch: Patch) -> None:
    run = cut_off(tmp_path, "slurm")
    stub(tmp_path, "squeue", "echo Unable to contact slurm controller >&2; exit 1", monkeypatch)
    (view,) = views([run], time.time() + LATER_S)
    assert view.state is State.UNKNOWN and "Unable to contact" in view.reason


def test_on_this_machine_a_job_is_looked_for_among_the_processes(tmp_path: Path) -> None:
    run = cut_off(tmp_path, "local")
    script = run.attempt(1).script
    script.write_text("sleep 60\n")
    child = subprocess.Popen(["bash", str(script), "x-1"])
    try:
        (view,) = views([run], time.time() + LATER_S)
        assert view.state is State.UNKNOWN and "works for it" in view.reason
    finally:
        child.kill()
        child.wait()
    (view,) = views([run], time.time() + LATER_S)
    assert view.state is State.LOST


def test_names_of_jobs_are_read_from_the_xml_of_grid_engine() -> None:
    recorded = (RECORDED / "qstat.txt").read_text()
    xml = recorded[recorded.index("<?xml") : recorded.rindex("</job_info>")] + "</job_info>"
    assert GridEngine("u").find_query("run").read(Finished(("qstat",), 0, xml, "")) == ["18"]
    assert GridEngine("u").find_query("arr2").read(Finished(("qstat",), 0, xml, "")) == ["20"], "once, not per task"
    assert GridEngine("u").find_query("nosuch").read(Finished(("qstat",), 0, xml, "")) == []
