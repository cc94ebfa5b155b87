"""What the campaign of faults rests on: a schedule that is a function of its seed, and judgements that can say no."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import leftovers
from tests.campaign.faults import KINDS, Expected
from tests.campaign.schedule import RANKS, schedule
from tests.campaign.spec import FIRST_STEP, LAST_STEP
from tests.campaign.trial import OVER, Row
from tests.e2e.processes import Process

ALL = {"local": list(KINDS), "slurm": list(KINDS)}


def test_the_schedule_is_a_function_of_the_seed() -> None:
    assert schedule(7, 90, ALL) == schedule(7, 90, ALL)
    assert schedule(7, 90, ALL) != schedule(8, 90, ALL)


def test_every_kind_comes_in_every_place_before_one_comes_again() -> None:
    pairs = [(place, kind) for place, kinds in ALL.items() for kind in kinds]
    once = schedule(1, len(pairs), ALL)
    assert sorted((f.place, f.kind) for f in once) == sorted(pairs)
    twice = [(f.place, f.kind) for f in schedule(1, len(pairs) + 5, ALL)]
    assert max(map(twice.count, pairs)) == 2 and len(set(twice)) == len(pairs)


def test_faults_are_numbered_in_the_order_of_their_places_and_strike_within_the_training() -> None:
    faults = schedule(3, 200, ALL)
    assert [f.number for f in faults] == list(range(1, 201))
    assert [f.place for f in faults] == sorted((f.place for f in faults), key=list(ALL).index)
    assert {f.rank for f in faults} == set(range(RANKS))
    assert all(FIRST_STEP <= f.step < LAST_STEP for f in faults)
    late = [f.step for f in faults if f.kind == "cancel-late"]
    assert late and min(late) > LAST_STEP - 10


def test_a_place_where_nothing_is_possible_is_refused() -> None:
    with pytest.raises(ValueError, match="no kind of fault"):
        schedule(1, 10, {"local": []})


@pytest.mark.parametrize(
    "state, reason, done, wrong",
    [
        ("FAILED", "rank 2 (h, local rank 0) was killed by SIGKILL; rank 1 (h, local rank 1) lost it", False, ""),
        ("CANCELLED", "rank 2 (h, local rank 0) was killed by SIGKILL", False, "CANCELLED is none of FAILED"),
        ("FAILED", "rank 2 (h, local rank 0) lost its connection", False, "does not say SIGKILL"),
        ("FAILED", "rank 1 (h, local rank 1) fell; rank 2 got SIGKILL", False, "rank 1 is named as the cause"),
        ("COMPLETED", "all 4 ranks ended well", False, "did not record that it is done"),
        ("FAILED", "rank 2 (h, local rank 0) was killed by SIGKILL", True, "recorded that it is done"),
        ("COMPLETED", "all 4 ranks ended well", True, ""),
        ("RUNNING", "suspected: SIGKILL", False, "RUNNING is none of"),
    ],
)
def test_a_wrong_state_and_a_wrong_cause_are_seen(
    tmp_path: Path, state: str, reason: str, done: bool, wrong: str
) -> None:
    said = Expected(("FAILED",), ("SIGKILL",), culprit=2).wrong(_view(tmp_path, state, reason, done))
    assert (wrong in said) if wrong else not said, said


def test_a_suspicion_is_an_answer_only_if_no_record_says_more(tmp_path: Path) -> None:
    view = _view(tmp_path, "RUNNING", "node1 is suspected", False)
    assert Expected(("NODE_FAIL",), ("node1",)).wrong(view)
    assert not Expected(("NODE_FAIL",), ("node1",), suspicion=True).wrong(view)


def test_a_trial_is_good_only_if_every_check_passed() -> None:
    planned = schedule(1, 1, ALL)[0]
    assert not Row(planned).good, "a trial that came to nothing must not count"
    assert Row(planned, wrong="", recovered=True, identical=True).good
    assert not Row(planned, wrong="", recovered=True, identical=True, leftovers=["a process"]).good
    assert not Row(planned, wrong="", recovered=True).good
    assert not Row(planned, wrong="", recovered=True, identical=True, trouble=["no metrics to look at"]).good


@pytest.mark.parametrize("attempts, mixed", [([1, 1, 2, 2], []), ([1, 2, 1], ["metrics of two attempts are mixed"])])
def test_rows_of_two_attempts_are_distinguished(tmp_path: Path, attempts: list[int], mixed: list[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"attempt": n}) + "\n" for n in attempts))
    assert leftovers.mixed(tmp_path) == mixed


def test_files_half_written_are_found(tmp_path: Path) -> None:
    (tmp_path / "checkpoints/.tmp-step-1").mkdir(parents=True)
    (tmp_path / "attempts/.2").mkdir(parents=True)
    (tmp_path / "attempts/1").mkdir()
    assert sorted(leftovers.files(tmp_path)) == ["attempts/.2", "checkpoints/.tmp-step-1"]


def test_the_parts_of_a_job_are_recognised_by_their_module() -> None:
    wrapper = Process(
        "node1", 7, 6, ("/venv/python", "-u", "/x/training/entry/torusrun", "torusrun.orchestrator.job.rank", "/run/1")
    )
    launcher = Process("node1", 6, 5, ("srun", "--nodes=2", *wrapper.arguments))
    assert (wrapper.module, launcher.module) == ("torusrun.orchestrator.job.rank", "")


def test_the_states_that_end_a_watch_are_those_that_are_over() -> None:
    from torusrun.orchestrator.base.states import State

    assert set(OVER) == {state.value for state in State if state.over}


def _view(run: Path, state: str, reason: str, done: bool) -> dict[str, Any]:
    attempt = run / "attempts/1"
    attempt.mkdir(parents=True)
    if done:
        (attempt / "done.json").write_text("{}")
    return {"folder": str(run), "attempt": 1, "state": state, "reason": reason}
