"""Words name runs, a job is looked for by its name, and what killed clients left is cleaned."""

import fcntl
import json
import os
import pwd
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import index, ledger
from torusrun.orchestrator.run.folder.events import Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import unasked, views
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine

STRANGER = 4321
only_root = pytest.mark.needs("users")


def made(folder: Path) -> RunFolder:
    run = RunFolder(folder)
    run.attempt(1).folder.mkdir(parents=True)
    plan = {"schema": 1, "run": run.run_id, "grid": [1, 1], "ranks": 1, "site": {"scheduler": "local"}}
    run.plan.write_text(json.dumps(plan))
    ledger.append(run.ledger, Submitting(1, name=run.run_id))
    return run


def known(folder: Path) -> RunFolder:
    run = RunFolder(folder)
    folder.parent.mkdir(exist_ok=True)
    with index.announced(run):
        return made(folder)


def age(run: RunFolder) -> None:
    """Make the run's link old enough to be cleaned."""
    then_s = time.time() - index.YOUNG_S - 1.0
    os.utime(index.place() / run.run_id, (then_s, then_s), follow_symlinks=False)


def test_a_folder_that_its_parent_lists_is_not_gone(home: Path, monkeypatch: Patch) -> None:
    """NFS may answer from its cache that there is no such folder."""
    mine = known(home / "runs" / "mine-1")
    age(mine)
    monkeypatch.setattr(index, "is_gone", lambda run: True)
    index.runs()
    assert (index.place() / "mine-1").is_symlink() and mine.folder.exists()


def test_a_word_never_names_a_folder_where_the_user_stands(home: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """In a sticky shared folder anybody can make a folder that is called last."""
    mine = known(home / "runs" / "mine-1")
    made(tmp_path / "shared" / "last")
    made(tmp_path / "shared" / "other")
    monkeypatch.chdir(tmp_path / "shared")
    assert index.find("last").folder == mine.folder
    with pytest.raises(UserError, match=r"there is no run 'other'.*write \./other for a folder"):
        index.find("other")
    assert index.find("./other").folder == tmp_path / "shared" / "other"


@only_root
@pytest.mark.parametrize("verb", ["cancel", "resume"])
def test_a_run_of_another_user_is_not_acted_on(verb: str, home: Path, tmp_path: Path, capsys: Capsys) -> None:
    his = made(tmp_path / "shared" / "his-1")
    os.chown(his.folder, STRANGER, STRANGER)
    before = his.ledger.read_text()
    assert main([verb, str(his.folder)]) == 2
    assert f"this run belongs to user {STRANGER}; you can only look at it" in capsys.readouterr().err
    assert main(["status", str(his.folder)]) == 0
    assert his.ledger.read_text() == before, "looking at a run must not write into it"


def test_a_word_that_many_runs_begin_with_names_some_of_them(home: Path) -> None:
    for number in range(12):
        known(home / "runs" / f"many-{number:02}")
    with pytest.raises(
        UserError, match=r"'many' begins the ids of 12 runs: \.\.\., many-04, .*, many-11; many~0 is the newest$"
    ):
        index.find("many")


def test_a_client_that_was_stopped_while_it_cleaned_delays_no_other(home: Path, monkeypatch: Patch) -> None:
    known(home / "runs" / "first-1")
    monkeypatch.setattr(index, "LOCK_S", 0.1)
    with open(index.place().with_name("lock")) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        making = threading.Thread(target=known, args=(home / "runs" / "second-1",), daemon=True)
        making.start()
        making.join(240.0)
    assert [run.run_id for run in index.runs()] == ["first-1", "second-1"]


def test_what_a_killed_client_left_is_removed(home: Path) -> None:
    runs = home / "runs"
    whole, half = known(runs / "whole-1"), RunFolder(runs / "half-1")
    with index.announced(half):
        half.unfinished.mkdir()
        (half.unfinished / "run.yaml").write_text("name: half\n")
        assert [run.run_id for run in index.runs()] == ["whole-1"]
        assert half.unfinished.exists(), "a client that is at work must be left alone"
    assert [run.run_id for run in index.runs()] == ["whole-1"]
    assert half.unfinished.exists(), "another login node may not see the folder of a young run yet"
    age(half)
    assert [run.folder for run in index.runs()] == [whole.folder]
    assert not half.unfinished.exists() and [link.name for link in index.place().iterdir()] == ["whole-1"]


def test_runs_on_a_file_system_that_is_not_there_are_not_forgotten(home: Path) -> None:
    known(home / "scratch" / "mine-1")
    (home / "scratch").rename(home / "unmounted")
    assert index.runs() == []
    (home / "unmounted").rename(home / "scratch")
    assert [run.run_id for run in index.runs()] == ["mine-1"]


def test_the_last_run_is_the_one_submitted_last(home: Path) -> None:
    age(known(home / "runs" / "b-1"))  # two links of one tick of the clock have the same time
    known(home / "runs" / "a-2")
    os.utime(home / "runs" / "b-1" / "plan.json")
    assert index.find("last").run_id == "a-2"


def test_a_word_counts_back_from_the_newest(home: Path) -> None:
    runs = [known(home / name) for name in ("one-1", "two-1", "one-2", "one-3")]
    words = {"last~0": 3, "last~1": 2, "last~3": 0, "one~0": 3, "one~2": 0, "one-2~0": 2}
    assert {word: runs.index(index.find(word)) for word in words} == words
    with pytest.raises(UserError, match="one~3: 'one' begins the ids of 3 runs"):
        index.find("one~3")


def test_a_home_that_is_not_there_is_one_message(monkeypatch: Patch, capsys: Capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert main(["status"]) == 3
    assert "the list of your runs cannot be read: Not a directory" in capsys.readouterr().err


@only_root
def test_a_run_that_a_stranger_can_replace_is_looked_at_only(home: Path) -> None:
    """Where it lies, a stranger can show us one of our own, and then another one under the same name."""
    run = made(home / "his" / "run")
    os.chown(home / "his", STRANGER, STRANGER)
    with pytest.raises(UserError, match=f"his: this folder belongs to user {STRANGER}"):
        index.own(run)
    record = read_record(run)
    assert not record.mine and "others can replace" in unasked(record)
    os.chown(home / "his", os.geteuid(), -1)
    index.own(run)
    assert read_record(run).mine


def test_a_run_named_by_its_folder_needs_no_home(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HOME", "nowhere")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    run = made(tmp_path / "run")
    index.own(run)
    assert read_record(run).mine


def test_a_link_that_another_process_removes_meanwhile_is_passed_over(home: Path, monkeypatch: Patch) -> None:
    known(home / "runs" / "mine-1")
    links = index._links()
    (index.place() / "mine-1").unlink()
    monkeypatch.setattr(index, "_links", lambda: links)
    assert index.runs() == []


# A submission whose answer was lost: whether there is a job of its name, and which.


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
