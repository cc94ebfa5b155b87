"""`torusrun explain`: the cause, the failed ranks by time, the first error, and what to do."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import Capsys, Patch, prints
from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.cli.handle import Run
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitting
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.show.advice import ADVICE

PLACED = place(Grid((2, 2)), ["n1", "n2"], 2)
TRACEBACK = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>']
BOOM, GONE = [*TRACEBACK, "ValueError: boom"], [*TRACEBACK, "RuntimeError: Connection closed by peer"]


def rank_end(rank: int, ended_s: float, **more: Any) -> RankEnd:
    slot = PLACED.slots[rank]
    return RankEnd(rank, slot.host, slot.local_rank, ended_s, **{"exit_code": 1, **more})


def fails(home: Path, end: End, *ends: RankEnd, **logs: list[str]) -> RunFolder:
    """A run that ended so, with these ends of ranks and these lines in their logs (`rank2=[...]`)."""
    run = make(write_specs(home), end)
    for one in ends:
        one.write(run.attempt(1).rank_end(one.rank))
    for name, lines in logs.items():
        run.attempt(1).rank_log(int(name.removeprefix("rank"))).write_text("\n".join(lines) + "\n")
    return run


@pytest.fixture
def failed(home: Path) -> RunFolder:
    """Rank 2 raised an error, and rank 0 lost its connection 0.4 s later."""
    culprit, witness = rank_end(2, 10.0), rank_end(0, 10.4, exit_code=69, meaning=Meaning.CUT_OFF)
    end = ended(How.FAILED, PLACED, by=culprit, step=57, said="ValueError: boom")
    return fails(home, end, witness, culprit, rank0=GONE, rank2=["epoch 1", *BOOM])


def said(capsys: Capsys, *words: str) -> str:
    return prints(capsys, "explain", *words)


def test_a_missing_package_is_to_be_installed(home: Path, capsys: Capsys) -> None:
    missing = "ModuleNotFoundError: No module named 'sklearn.datasets'"
    run = fails(home, ended(How.FAILED, PLACED, by=rank_end(2, 10.0), said=missing), rank2=[*TRACEBACK, missing])
    to_do = said(capsys, run.run_id).partition("to do")[2].splitlines()[0].strip()
    assert to_do == (
        "install scikit-learn for the Python of the ranks, or in their image: `python -m pip install scikit-learn`"
    )


def test_a_failed_run_is_explained_by_the_rank_that_failed_first(failed: RunFolder, capsys: Capsys) -> None:
    mend = "fix it and submit a new run; this run keeps the code and the keys that it was submitted with"
    again = f"`torusrun resume {failed.run_id}` continues from the newest checkpoint, if there is one"
    assert said(capsys, failed.run_id).splitlines() == [
        f"{failed.run_id} is FAILED (attempt 1): rank 2 (n2, local rank 0) ended with exit code 1 after step 57: "
        "ValueError: boom",
        "cause     program: the program itself failed",
        "evidence  exit_code: 1",
        "evidence  said: ValueError: boom",
        "failed        +0.0 s  rank 2 (n2, local rank 0) ended with exit code 1",
        "              +0.4 s  rank 0 (n1, local rank 0) lost its connection to another rank",
        "error     of rank 2:",
        *(f"    {line}" for line in BOOM),
        f"to do     {mend}",
        f"          if the error was temporary: {again}",
    ]


def test_its_json_has_the_same_facts(failed: RunFolder, capsys: Capsys) -> None:
    found = json.loads(said(capsys, failed.run_id, "--json"))
    assert (found["schema"], found["cause"], found["hosts"], found["ranks"]) == (1, "program", ["n2"], [2])
    assert [(end["rank"], end["ended_s"]) for end in found["failed"]] == [(2, 10.0), (0, 10.4)]
    assert (found["error_of"], found["error"], found["step"]) == ("rank 2", BOOM, 57)


def test_the_time_of_the_run_is_accounted_for(home: Path, capsys: Capsys) -> None:
    run = make(write_specs(home), ended(How.ALL_WELL, PLACED))
    begin = {"event": "submitting", "name": "r"}, {"event": "started", "job": "1", "hosts": ["n1"]}
    end = {"event": "ended", "state": "COMPLETED", "reason": "it ended"}
    times = zip((0.0, 3600.0, 7200.0), (*begin, end), strict=True)
    run.ledger.write_text("".join(json.dumps({"t": t, "attempt": 1, **event}) + "\n" for t, event in times))
    rows = ({"t": t, "event": "step", "step": step, "attempt": 1} for step, t in enumerate((3780.0, 7200.0), 1))
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["status", run.run_id, "--long"]) == 0
    assert [line.strip() for line in capsys.readouterr().out.splitlines()[-2:]] == [
        "queue 60 min (50.0%), start 3 min (2.5%), compute 57 min (47.5%); 2.0 h in all",
        "productive: 95.0% of the time since its first start, 47.5% since its submission",
    ]
    found = Run(run).account()
    assert (found.seconds["compute"], found.ettr, found.since_submit) == (3420.0, 0.95, 0.475)


def test_long_shows_attempts_and_times_of_the_runs_that_it_names(failed: RunFolder, capsys: Capsys) -> None:
    at = failed.checkpoints / "step-00000040"
    ledger.append(failed.ledger, Submitting(2, "r", resumes=str(at)))
    ledger.append(failed.ledger, Started(2, "7.1", ("n1", "n2")))
    ledger.append(failed.ledger, Ended.by(2, ended(How.HOST_LOST, PLACED, hosts=["n2"], step=9)))
    shown = [line.split() for line in prints(capsys, "status", failed.run_id, "--long").splitlines()]
    table = shown.index(["ATTEMPT", "JOB", "STATE", "CAUSE", "BEGAN", "TOOK", "FROM", "HOSTS"])
    first, second = shown[table + 1 : table + 3]
    assert first[:4] == ["1", "999999999.1", "FAILED", "unknown"] and first[-2:] == ["-", "here"]
    assert second[:4] == ["2", "7.1", "NODE_FAIL", "host_lost"] and second[-2:] == ["step-00000040", "n[1-2]"]
    assert shown[table + 3][-2:] == ["in", "all"]
    (view,) = json.loads(prints(capsys, "status", failed.run_id, "--long", "--json"))["runs"]
    assert [one["resumes"] for one in view["account"]["attempts"]] == [None, str(at)]
    assert main(["status", "--long"]) == 0
    assert "ATTEMPT" not in capsys.readouterr().out, "only of runs that it names: it reads all of their metrics"


def test_an_earlier_attempt_has_no_advice(failed: RunFolder, capsys: Capsys) -> None:
    shutil.copytree(failed.attempt(1).folder, failed.attempt(2).folder)
    ledger.append(failed.ledger, Ended.by(2, ended(How.ALL_WELL, PLACED)))
    shown = said(capsys, failed.run_id, "--attempt", "1")
    assert "cause     program" in shown and "to do" not in shown


def test_metrics_that_cannot_be_read_hide_nothing_else(failed: RunFolder, capsys: Capsys) -> None:
    failed.metrics.unlink()
    failed.metrics.symlink_to("elsewhere")
    shown = said(capsys, failed.run_id)
    assert "cause     program" in shown and "ValueError: boom" in shown


def test_a_name_in_a_command_is_quoted() -> None:
    assert ADVICE[Cause.HOST_LOST].lines("a;touch x", "/f", ["n 1"])[0].startswith("`torusrun resume 'a;touch x'`")


def test_a_killed_rank_has_no_traceback_so_its_last_lines_are_shown(home: Path, capsys: Capsys) -> None:
    culprit = rank_end(3, 10.0, exit_code=None, signal=9)
    witness = rank_end(0, 10.2, exit_code=69, meaning=Meaning.CUT_OFF)
    run = fails(home, ended(How.KILLED, PLACED, by=culprit), culprit, witness, rank0=GONE, rank3=["step 56", "step 57"])
    shown = said(capsys, run.run_id)
    assert "error     of rank 3:\n    step 56\n    step 57\n" in shown and "Connection closed" not in shown
    assert "(`dmesg`) of n2" in shown


def test_without_a_rank_to_blame_the_first_traceback_of_all_is_shown(home: Path, capsys: Capsys) -> None:
    run = fails(home, End(State.FAILED, "the launcher ended with exit code 1"), rank1=BOOM)
    shown = said(capsys, run.run_id)
    assert "error     of rank 1:" in shown and "ValueError: boom" in shown


def test_an_end_that_only_the_ledger_knows_is_explained(home: Path, capsys: Capsys) -> None:
    run = make(write_specs(home), End(State.FAILED, "it is not known"))
    run.attempt(1).end.unlink()
    lost = ended(How.HOST_LOST, PLACED, hosts=["n2"], step=9)
    ledger.append(run.ledger, Ended.by(1, lost))
    shown = said(capsys, run.run_id)
    assert shown.startswith(f"{run.run_id} is NODE_FAIL (attempt 1): lost n2 (ranks 2, 3) after step 9\n")
    assert "cause     host_lost: a host died, or its network connection was cut" in shown
    assert "its option `--exclude n2` avoids a bad host" in shown


def test_a_completed_run_needs_no_advice(home: Path, capsys: Capsys) -> None:
    run = make(write_specs(home), ended(How.ALL_WELL, PLACED))
    assert said(capsys, run.run_id).splitlines() == [
        f"{run.run_id} is COMPLETED (attempt 1): all 4 ranks ended well",
        "cause     done: the run is complete",
    ]


def test_a_run_that_is_not_over_has_no_cause(failed: RunFolder, capsys: Capsys, monkeypatch: Patch) -> None:
    failed.attempt(1).end.unlink()
    lines = failed.ledger.read_text().splitlines(keepends=True)
    failed.ledger.write_text("".join(lines[:-1]))  # without the event of its end
    monkeypatch.setattr(Client, "poll", lambda client, jobs: dict.fromkeys(jobs, Status(State.RUNNING)))
    assert said(capsys, failed.run_id).splitlines() == [f"{failed.run_id} is RUNNING (attempt 1)"]


def test_what_other_users_wrote_cannot_control_the_terminal(home: Path, capsys: Capsys) -> None:
    end = replace(
        ended(How.FAILED, PLACED, by=rank_end(2, 10.0)), reason="\x1b[2Jgone", evidence={"said": "\x1b]0;x\x07"}
    )
    run = fails(home, end, rank_end(2, 10.0), rank2=["\x1b[31mred"])
    assert "\x1b" not in said(capsys, run.run_id)


def test_every_cause_has_advice_that_names_only_known_values() -> None:
    assert set(ADVICE) == set(Cause)
    for cause, advice in ADVICE.items():
        texts = advice.lines("r", "/f", ["n1"])
        assert not any("{" in text for text in (*texts, *advice.lines("r", "/f", [])))
        assert advice.meaning and (texts or cause is Cause.DONE), f"{cause} needs a meaning and something to do"
