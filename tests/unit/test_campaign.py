"""What the campaign of faults rests on: a schedule that is a function of its seed, and judgements that can say no."""

from __future__ import annotations

import json
import random
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.under_faults import peers, stretch
from benchmarks.under_faults.figures import arrivals, best_interval_s, bound, expected_ettr
from benchmarks.under_faults.single import HOST_KINDS, in_runs
from tests.campaign import leftovers
from tests.campaign.faults import KINDS, Expected
from tests.campaign.schedule import RANKS, schedule
from tests.campaign.spec import FIRST_STEP, LAST_STEP
from tests.campaign.trial import OVER, Row

ALL = {"local": list(KINDS), "slurm": list(KINDS)}


def test_the_schedule_is_a_function_of_the_seed_and_every_kind_comes_in_every_place_before_one_comes_again() -> None:
    assert schedule(7, 90, ALL) == schedule(7, 90, ALL)
    assert schedule(7, 90, ALL) != schedule(8, 90, ALL)
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


def test_the_states_that_end_a_watch_are_those_that_are_over() -> None:
    from torusrun.orchestrator.base.states import State

    assert set(OVER) == {state.value for state in State if state.over}


def _view(run: Path, state: str, reason: str, done: bool) -> dict[str, Any]:
    attempt = run / "attempts/1"
    attempt.mkdir(parents=True)
    if done:
        (attempt / "done.json").write_text("{}")
    return {"folder": str(run), "attempt": 1, "state": state, "reason": reason}


# The figures of benchmarks/faults.py: faults as a function of their seed, and Daly's formula beside a simulation.


SEED = 7


def simulated(interval_s: float, checkpoint_s: float, restart_s: float, mean_s: float, work_s: float) -> float:
    """The share of productive time of a long run with faults at random times, also during restarts."""
    source, done_s, now_s = random.Random(SEED), 0.0, 0.0
    fault_s = source.expovariate(1 / mean_s)
    restarts = False
    while done_s < work_s:
        part_s = restart_s if restarts else interval_s + checkpoint_s
        if now_s + part_s < fault_s:
            now_s, done_s = now_s + part_s, done_s + (0.0 if restarts else interval_s)
            restarts = False
        else:
            now_s, restarts = fault_s, True
            fault_s = now_s + source.expovariate(1 / mean_s)
    return done_s / now_s


def test_the_same_seed_gives_the_same_faults() -> None:
    found = [*arrivals(SEED, 15.0, 3000.0, 4)]
    assert found == [*arrivals(SEED, 15.0, 3000.0, 4)] != [*arrivals(SEED + 1, 15.0, 3000.0, 4)]
    assert {one.rank for one in found} == {0, 1, 2, 3} and all(0 < one.at_s < 3000 for one in found)
    assert statistics.mean(b.at_s - a.at_s for a, b in zip(found, found[1:], strict=False)) == pytest.approx(
        15, rel=0.2
    )


@pytest.mark.parametrize(
    ("checkpoint_s", "restart_s", "mean_s"), [(0.02, 3.0, 60.0), (0.5, 3.0, 15.0), (0.1, 0.0, 15.0)]
)
def test_the_formula_agrees_with_a_simulation(checkpoint_s: float, restart_s: float, mean_s: float) -> None:
    best_s = best_interval_s(checkpoint_s, mean_s)
    formula = expected_ettr(best_s, checkpoint_s, restart_s, mean_s)
    assert simulated(best_s, checkpoint_s, restart_s, mean_s, 30_000 * mean_s) == pytest.approx(formula, abs=0.004)
    assert formula <= bound(checkpoint_s, restart_s, mean_s, 0.01) <= formula + 0.001
    for other_s in (best_s / 2, best_s * 2):
        assert expected_ettr(other_s, checkpoint_s, restart_s, mean_s) < formula


def rows(*steps: tuple[float, int, int]) -> list[dict[str, float]]:
    return [{"t": t, "step": step, "ranks": ranks} for t, step, ranks in steps]


def test_samples_of_ranks_that_were_away_are_lost() -> None:
    """Four ranks of 8 samples in a step; one is killed after the second, and is back at the fifth."""
    steps = rows(
        (1.0, 1, 4), (1.0, 1, 4), (2.0, 2, 4), (4.5, 3, 3), (4.6, 3, 3), (5.0, 4, 3), (6.0, 5, 4), (99.0, 6, 4)
    )
    found = peers.told(steps, 0.5, 7.5, [2.1], 100)
    assert (found.samples, found.lost, found.again, found.next_step_s) == (144, 16, 0, (pytest.approx(2.4),))


def test_steps_that_are_computed_again_count_once() -> None:
    steps = rows(*((t, t, 4) for t in range(1, 8)), (15.0, 5, 4), (15.1, 5, 4), (16.0, 6, 4), (16.1, 7, 4))
    found = peers.told(steps, 0.0, 30.0, [7.5, 29.0], 100)
    assert (found.samples, found.lost, found.again) == (7 * 32, 0, 3 * 32)
    assert found.next_step_s == (7.5,), "after the second fault there is no step"


def test_the_steps_of_rank_0_show_what_was_computed_twice_or_never() -> None:
    steps = [(1, 1.0, 1), (1, 2.0, 2), (1, 3.0, 3), (2, 9.0, 2), (2, 10.0, 3), (3, 20.0, 6)]
    found = stretch.stretch_of(
        [{"attempt": n, "t": t, "step": step} for n, t, step in steps], [3.5, 12.0], 20.0, {}, 100
    )
    assert (found.steps, found.again, found.skipped, found.attempts) == (5, 2, 2, 3)
    assert found.next_step_s == (5.5, 8.0)


def test_other_faults_come_between_two_that_take_a_host_away() -> None:
    kinds = (*HOST_KINDS, "kill-rank", "segv-rank", "stop-rank", "bad-python", "kill-shell")
    for seed in range(20):
        planned = schedule(seed, len(kinds), {"slurm": kinds})
        (faults,) = in_runs(planned, len(kinds))
        at = [n for n, fault in enumerate(faults) if fault.kind in HOST_KINDS]
        assert all(later - earlier > 1 for earlier, later in pairwise(at)), (seed, faults)
        assert sorted(fault.kind for fault in faults) == sorted(kinds)
        assert faults == sorted(faults, key=lambda fault: fault.step), "they strike in this order"
