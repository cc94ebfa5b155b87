"""What an attempt waits for before its first step, and what seems wrong later: words, and no state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder.at_work import Slow
from torusrun.orchestrator.run.folder.events import Event, Started, Submitting
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.state.remarks import SILENT_S, remarks, waiting

Says = Callable[..., str]
RUNNING = Status(State.RUNNING)
NOW_S = 5000.0


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    found = Attempt(tmp_path / "2")
    found.ranks.mkdir(parents=True)
    return found


@pytest.fixture
def says(attempt: Attempt) -> Says:
    def of(*events: Event, status: Status = RUNNING, rows: list[dict[str, Any]] | None = None, **how: Any) -> str:
        return waiting(status, events, attempt, rows or [], **{"command": False, **how})

    return of


def test_the_steps_to_the_first_step_of_a_training(attempt: Attempt, says: Says) -> None:
    began = Started(2, job="7", hosts=("n1", "n2"), grid=(2, 1))
    assert says() == "the job starts on its first node"
    attempt.pulse.touch()
    assert says() == "the hosts are put in order"
    attempt.preflight_order.touch()
    assert says() == "its nodes and the links between them are checked"
    attempt.preflight_order.unlink()
    attempt.launch.touch()
    assert says() == "the image is checked"
    assert says(began) == "0 of 2 ranks started"
    numbers = {"name": "shards", "written_bytes": 3_100_000_000, "to_write_bytes": 8_000_000_000, "hosts": 2}
    attempt.staged.write_text(json.dumps(numbers))
    assert says(began) == "0 of 2 ranks started; staging shards to 2 hosts: 3.1 of 8.0 GB"
    attempt.staged.write_text(json.dumps({**numbers, "done": {}}))
    attempt.rank_start(0).touch()
    assert says(began) == "1 of 2 ranks started"
    attempt.rank_start(1).touch()
    attempt.rendezvous.touch()
    assert says(began) == "the ranks meet: rank 0 waits for the others"
    attempt.rendezvous.unlink()
    assert says(began) == "the ranks load their program and data"
    assert says(began, command=True) == "", "its log says more"
    attempt.logs.mkdir()
    attempt.rank_log(0).write_text("iteration 1\n")
    assert says(began, command=True, pattern=True, now_s=began.time_s + 59) == ""
    unmatched = "metrics.pattern matches no line of rank 0's log so far"
    assert says(began, command=True, pattern=True, now_s=began.time_s + 61) == unmatched
    assert says(began, command=True, pattern=True, now_s=began.time_s + 61, rows=[{"event": "step"}]) == ""
    start = {"event": "start", "step": 40}
    assert says(began, rows=[start]) == "the ranks have met; the first step is not recorded yet"
    assert says(began, rows=[start, {"event": "step", "step": 41}]) == ""


def test_an_attempt_in_the_queue_says_why_and_where_it_resumes(says: Says) -> None:
    submitting = Submitting(2, name="x", resumes="step-0000040")
    assert says(status=Status(State.PENDING)) == "in the queue; the scheduler gives no reason"
    assert says(status=Status(State.PENDING, "it waits for free nodes")) == "", "the state has the reason"
    assert says(submitting, status=Status(State.PENDING, "it waits for free nodes")) == "resumes from step-0000040"
    assert says(submitting) == "the job starts on its first node; resumes from step-0000040"
    assert says(submitting, status=Status(State.UNKNOWN)) == says(submitting, status=Status(State.FAILED)) == ""


def test_a_supervisor_that_is_silent_is_suspected_and_slow_ranks_are_named(attempt: Attempt) -> None:
    assert remarks(attempt, NOW_S) == ""
    attempt.pulse.write_text("node1\n")
    os.utime(attempt.pulse, (NOW_S - SILENT_S, NOW_S - SILENT_S))
    assert remarks(attempt, NOW_S) == ""
    os.utime(attempt.pulse, (NOW_S - 40, NOW_S - 40))
    silent = "suspected: the supervisor on node1 is silent for 40 s: it or its host is gone or stopped"
    assert remarks(attempt, NOW_S) == silent
    Slow((3,), ("node1",), False, 1.5, 60).write(attempt.slow)
    assert remarks(attempt, NOW_S).startswith(f"{silent}; slow: rank 3 (node1) computes 1.5 times as long as the ")
    attempt.slow.write_text("{")
    attempt.pulse.write_text("")
    os.utime(attempt.pulse, (NOW_S - 125, NOW_S - 125))
    assert remarks(attempt, NOW_S).startswith("suspected: the supervisor is silent for 2 min: "), (
        "nobody knows its host"
    )


def test_a_pulse_that_is_no_file_does_not_count(attempt: Attempt) -> None:
    os.mkfifo(attempt.pulse)
    os.utime(attempt.pulse, (0, 0))
    assert remarks(attempt, NOW_S) == ""
