"""Runs that are over are listed from one file; what happens to them after that is seen all the same."""

import fcntl
import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import Capsys, Patch, prints
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import index, ledger, settled
from torusrun.orchestrator.run.folder.events import Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import poll, selection
from torusrun.orchestrator.run.state.poll import views


@pytest.fixture
def runs(home: Path, monkeypatch: Patch) -> list[RunFolder]:
    """Two runs that are over, which were looked at once."""
    monkeypatch.setattr(poll, "FEW", 0)
    spec = write_specs(home)
    made = [make(spec, End(State.COMPLETED, "well")), make(spec, End(State.FAILED, "badly"))]
    views(made)
    assert set(settled.runs()) == {run.run_id for run in made}, "both are over"
    return made


@pytest.fixture
def opened(monkeypatch: Patch) -> Counter[str]:
    """How often each name of a file was opened, from now on."""
    counts: Counter[str] = Counter()
    real = os.open

    def counted(path: str | Path, *args: int, **named: int) -> int:
        counts[Path(path).name] += 1
        return real(path, *args, **named)

    monkeypatch.setattr(os, "open", counted)
    return counts


def test_nobody_looks_into_the_folders_of_runs_that_are_over(runs: list[RunFolder]) -> None:
    before = views(runs)
    for run in runs:
        run.plan.unlink()
        shutil.rmtree(run.attempts)
    assert views(index.runs()) == before
    assert [view.state for view in before] == [State.COMPLETED, State.FAILED]


def test_a_run_that_continues_is_looked_at_again(runs: list[RunFolder]) -> None:
    ledger.append(runs[1].ledger, Submitting(2, name="x"))
    runs[1].attempt(2).folder.mkdir()
    done, on = views(runs)
    assert (done.state, on.attempt) == (State.COMPLETED, 2) and on.state is State.UNKNOWN
    settled.forget([runs[1].run_id])  # as `resume` does, so that it is shown among those that are not over
    assert set(settled.runs()) == {runs[0].run_id}


@pytest.mark.parametrize("few", [0, 20])
@pytest.mark.parametrize("asked", [[], ["--all"], ["*"], ["--state", "completed,failed"]])
def test_a_folder_that_was_removed_is_forgotten(
    asked: list[str],
    few: int,
    runs: list[RunFolder],
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    shutil.rmtree(runs[0].folder)
    monkeypatch.setattr(poll, "FEW", few)
    assert main(["status", *asked]) == 0
    shown = capsys.readouterr()
    assert runs[1].run_id in shown.out and runs[0].run_id not in shown.out
    assert not asked or shown.err == ""
    assert index.runs() == [runs[1]] and not (index.place() / runs[0].run_id).is_symlink()


def test_a_removed_run_is_not_found_though_that_cannot_be_written_down(runs: list[RunFolder]) -> None:
    lock = settled._path().with_suffix(".lock")
    lock.unlink()
    lock.mkdir()
    shutil.rmtree(runs[1].folder)
    assert index.find("last") == runs[0] and runs[1].run_id in settled.runs()
    with pytest.raises(UserError, match=f"there is no run '{runs[1].run_id}'"):
        index.find(runs[1].run_id)


def test_runs_that_were_removed_are_forgotten_together(runs: list[RunFolder], opened: Counter[str]) -> None:
    for run in runs:
        shutil.rmtree(run.folder)
    assert index.existing(runs) == [] and not settled.runs()
    assert opened["settled.lock"] == 1


@pytest.mark.parametrize("text", ["", "torusrun's settled runs, schema 0\n", "torusrun's settl", "\0"])
def test_a_file_that_is_not_one_is_written_again(text: str, runs: list[RunFolder]) -> None:
    rows = list(settled.runs().values())
    settled._path().write_text(text)
    assert settled.runs() == {}
    settled.keep(rows)
    assert list(settled.runs().values()) == rows


def test_a_stopped_process_delays_no_other(runs: list[RunFolder], monkeypatch: Patch) -> None:
    monkeypatch.setattr(settled, "LOCK_S", 0.1)
    with open(settled._path().with_suffix(".lock")) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        forgetting = threading.Thread(target=settled.forget, args=([runs[0].run_id],), daemon=True)
        forgetting.start()
        forgetting.join(300)
        assert not forgetting.is_alive() and set(settled.runs()) == {runs[1].run_id}


def test_a_damaged_run_is_looked_at_each_time(runs: list[RunFolder], home: Path) -> None:
    damaged = make(home / "run.yaml", End(State.FAILED, "badly"))
    damaged.plan.write_text("{")
    damaged.attempt(1).plan.write_text("{")
    views([*runs, damaged])
    assert damaged.run_id not in settled.runs()


def test_the_first_status_of_many_runs_reads_only_the_ends_of_old_ones(
    home: Path, opened: Counter[str], capsys: Capsys
) -> None:
    spec = write_specs(home)
    ended = make(spec, End(State.COMPLETED, "well"))
    for number in range(59):
        run = RunFolder(ended.folder.with_name(f"many-{number:02d}"))
        run.attempt(1).folder.mkdir(parents=True)
        with index.announced(run):
            ledger.append(run.ledger, Submitted(1, job=f"{number}.1", scheduler="local"))
        run.plan.write_text(ended.plan.read_text().replace(ended.run_id, run.run_id))
        if number:  # the oldest of them is not over by what it wrote itself
            End(State.FAILED, "badly").write(run.attempt(1).end)
    opened.clear()
    for ends, whole in ((60, 21), (1, 1)):  # read to know whether runs are over; runs read whole
        assert main(["status"]) == 0
        shown = capsys.readouterr()
        rows = [line.split()[0] for line in shown.out.splitlines()[1:]]
        assert [row for row in rows if row.startswith("many")] == ["many-00", *(f"many-{n}" for n in range(39, 59))]
        assert shown.err.startswith("39 more runs are over and not shown: --all shows all")
        assert (opened["plan.json"], opened["metrics.jsonl"], opened["end.json"]) == (whole, whole, ends + whole)
        opened.clear()
    assert main(["status", "--since", "2099-01-01"]) == 0 and opened["metrics.jsonl"] == 39
    opened.clear()
    assert main(["status", "--since", "2099-01-01"]) == 0 and opened["plan.json"] == 1, "those that are over are kept"
    capsys.readouterr()
    assert len([line for line in prints(capsys, "status", "--all").splitlines() if line.startswith("m")]) == 60


def test_old_runs_are_shown_on_request(runs: list[RunFolder], capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr(selection, "SHOWN_OVER", 1)
    assert main(["status"]) == 0
    shown = capsys.readouterr()
    assert runs[1].run_id in shown.out and runs[0].run_id not in shown.out
    assert "1 more run is over and not shown" in shown.err
    for asked in (["--all"], ["--json"], ["--state", "completed"], [runs[0].run_id]):
        assert runs[0].run_id in prints(capsys, "status", *asked), asked


def test_the_file_stays_small_however_often_runs_continue(runs: list[RunFolder], monkeypatch: Patch) -> None:
    monkeypatch.setattr(settled, "FEW", 10)
    rows = list(settled.runs().values())
    for _ in range(30):
        settled.keep(rows)
        settled.forget([rows[0].run_id])
    assert list(settled.runs()) == [rows[1].run_id]
    assert len(settled._path().read_text().splitlines()) < 20


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**6), junk=st.binary(max_size=40), cut=st.booleans())
def test_a_damaged_file_hides_no_run(at: int, junk: bytes, cut: bool, runs: list[RunFolder]) -> None:
    path = settled._path()
    whole = path.read_bytes()
    try:
        at %= len(whole)
        path.write_bytes(whole[:at] + junk + (b"" if cut else whole[at + len(junk) :]))
        assert sorted(view.run for view in views(index.runs())) == sorted(run.run_id for run in runs)
    finally:
        path.write_bytes(whole)
        os.utime(path)


@pytest.fixture(autouse=True)
def no_link_is_young(monkeypatch: Patch) -> None:
    """The index leaves young links alone; here they are cleaned at once."""
    monkeypatch.setattr(index, "YOUNG_S", 0.0)
