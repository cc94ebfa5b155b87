"""Verbs that act on several runs: what patterns and filters select, what is asked, and what `rm` never removes."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import Capsys, Patch, refuses
from tests.waiting import until
from torusrun.orchestrator.base import proc
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import claim, index, ledger
from torusrun.orchestrator.run.folder.events import Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.schedulers.local.sessions import job_id_of
from torusrun.orchestrator.upkeep import disk


@pytest.fixture
def spec(home: Path) -> Path:
    return write_specs(home)


@pytest.fixture
def runs(spec: Path) -> list[RunFolder]:
    """One run that is done and two that failed."""
    return [make(spec, End(state, "so")) for state in (State.COMPLETED, State.FAILED, State.FAILED)]


def ids(runs: list[RunFolder]) -> list[str]:
    return [run.run_id for run in runs]


def test_rm_removes_what_it_names_and_nothing_else(runs: list[RunFolder]) -> None:
    done, failed, other = runs
    assert main(["rm", failed.run_id, "--yes"]) == 0
    assert index.runs() == [done, other] and not failed.folder.exists()
    assert os.listdir(done.folder.parent).count(failed.folder.name) == 0


def test_rm_by_filters_shows_the_runs_and_needs_yes_without_a_terminal(
    runs: list[RunFolder], capsys: Capsys, monkeypatch: Patch
) -> None:
    done, failed, other = runs
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    said = refuses(capsys, "rm", "--state", "failed")
    assert failed.run_id in said and other.run_id in said and done.run_id not in said and "--yes" in said
    assert index.runs() == runs
    assert main(["rm", "made-*", "--state", "failed", "--yes"]) == 0
    assert index.runs() == [done]


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("\n", 3), ("no\n", 3), ("", 3)])
def test_a_question_is_answered_on_the_terminal(
    runs: list[RunFolder], monkeypatch: Patch, answer: str, left: int
) -> None:
    typed = io.StringIO(answer)
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    assert main(["rm", "*"]) == 0
    assert len(index.runs()) == left


def test_rm_needs_a_choice_and_a_choice_without_runs_does_nothing(runs: list[RunFolder], capsys: Capsys) -> None:
    assert main(["rm", "--yes"]) == 2 and "which runs?" in capsys.readouterr().err
    assert main(["rm", "no-such-*", "--yes"]) == 2
    assert main(["rm", "--state", "running"]) == main(["rm", "--older-than", "1d"]) == 0, "as in a cron job"
    assert "no run to remove" in capsys.readouterr().err
    assert index.runs() == runs


def test_rm_by_age_takes_old_runs_only_and_none_of_unknown_age(runs: list[RunFolder]) -> None:
    old, unknown, new = runs
    lines = [json.loads(line) for line in old.ledger.read_text().splitlines()]
    old.ledger.write_text("".join(json.dumps({**line, "t": line["t"] - 10 * 86400}) + "\n" for line in lines))
    unknown.ledger.write_text("")
    assert main(["rm", "--older-than", "5d", "--yes"]) == 0
    assert index.runs() == [unknown, new]


@pytest.fixture
def job() -> Iterator[str]:
    """The id of a job of this machine that is at work."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield job_id_of(Path(f"/proc/{process.pid}/stat").read_text())
        process.kill()


def at_work(spec: Path, job: str, after: tuple[str, ...] = ()) -> RunFolder:
    """A run whose only attempt has not ended, in this job."""
    run = make(spec, End(State.FAILED, "badly"))
    run.attempt(1).end.unlink()
    run.ledger.unlink()
    ledger.append(run.ledger, Submitting(1, name=run.run_id, after=after))
    ledger.append(run.ledger, Submitted(1, job=job, scheduler="local"))
    return run


def test_rm_leaves_a_run_that_is_not_over(spec: Path, job: str, capsys: Capsys) -> None:
    run = at_work(spec, job)
    assert f"torusrun cancel {run.run_id}" in refuses(capsys, "rm", run.run_id, "--yes") and run.folder.exists()
    assert main(["rm", "*", "--yes"]) == 0 and run.folder.exists()


def test_rm_leaves_a_run_whose_ranks_still_live(runs: list[RunFolder], capsys: Capsys) -> None:
    lock = claim.hold(runs[1].attempt(1))
    try:
        assert main(["rm", *ids(runs), "--yes"]) == 2
    finally:
        os.close(lock)
    assert "still at work" in capsys.readouterr().err
    assert index.runs() == [runs[1]], "the others are removed all the same"


def test_cancel_ends_the_stopped_processes_of_a_run_that_is_over_which_rm_names(
    runs: list[RunFolder], capsys: Capsys
) -> None:
    lock = claim.hold(runs[0].attempt(1))
    left = subprocess.Popen(["sleep", "600"], pass_fds=[lock])
    os.kill(left.pid, signal.SIGSTOP)
    until(lambda: proc.state_of(left.pid) == "T", "it to stop")
    os.close(lock)
    said = refuses(capsys, "rm", runs[0].run_id, "--yes")
    assert f"process {left.pid} on " in said and f"`torusrun cancel {runs[0].run_id}`" in said
    assert main(["cancel", runs[0].run_id]) == 0 and left.wait(240) == -signal.SIGTERM
    assert main(["cancel", runs[0].run_id]) == 2 and "is over already" in capsys.readouterr().err
    assert main(["rm", runs[0].run_id, "--yes"]) == 0


def test_rm_leaves_a_run_for_which_another_waits(runs: list[RunFolder], spec: Path, job: str, capsys: Capsys) -> None:
    waiting = at_work(spec, job, after=(str(runs[0].folder),))
    for named in ([runs[0].run_id], [runs[0].run_id, waiting.run_id]):
        assert "waits for" in refuses(capsys, "rm", *named, "--yes") and runs[0].folder.exists(), named


def test_rm_of_a_copied_folder_leaves_its_run(runs: list[RunFolder], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(runs[0].folder, tmp_path / "copy" / runs[0].run_id))
    assert main(["rm", str(copy), "--yes"]) == 0 and not copy.exists()
    assert index.runs() == runs, "the run that was copied stays in the list of runs"


def test_cancel_and_resume_by_pattern_leave_out_what_they_cannot_act_on(runs: list[RunFolder], capsys: Capsys) -> None:
    assert main(["cancel", "made-*", "--yes"]) == 0
    assert "3 match, none of which is waiting or running" in capsys.readouterr().err
    said = refuses(capsys, "resume", "made-*")
    assert "resume 2 runs" in said and runs[0].run_id not in said


def test_collect_of_several_makes_a_folder_for_each(runs: list[RunFolder], tmp_path: Path) -> None:
    into = tmp_path / "kept"
    assert main(["collect", "made-*", str(into), "--checkpoints", "none"]) == 0
    assert sorted(os.listdir(into)) == sorted(ids(runs))
    assert main(["collect", *ids(runs)[:2], str(into)]) == 2, "nothing may be overwritten"


def test_the_room_of_a_run_counts_every_file_once_and_follows_no_link(runs: list[RunFolder]) -> None:
    small, large, _ = runs
    (large.folder / "one").write_bytes(bytes(1 << 20))
    os.link(large.folder / "one", large.folder / "two")
    os.symlink("/", large.folder / "away")
    assert disk.of_path(large.folder) - disk.of_path(small.folder) < (1 << 20) + 65536
