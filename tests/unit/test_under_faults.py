"""The figures of benchmarks/faults.py: faults as a function of their seed, and Daly's formula beside a simulation."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest

from benchmarks.under_faults import peers, stretch
from benchmarks.under_faults.figures import arrivals, best_interval_s, bound, expected_ettr, of, undisturbed_step_s
from benchmarks.under_faults.single import HOST_KINDS, in_runs
from tests.campaign.schedule import schedule

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


def test_without_any_cost_nothing_is_lost_but_restarts() -> None:
    assert bound(0.0, 0.0, 60.0, 0.001) == pytest.approx(1.0, abs=1e-3)


def test_figures_are_medians_and_the_worst() -> None:
    assert of([3.0, None, 1.0, 2.0]) == "2.0 (3.0)" and of([None]) == "-"


def test_an_undisturbed_step_has_no_restart_and_no_checkpoint() -> None:
    steps = [(0.0, 1), (1.0, 2), (2.0, 3), (2.5, 4), (4.0, 5), (20.0, 6), (20.5, 6), (21.5, 7)]
    assert undisturbed_step_s(steps, 4) == pytest.approx((1 + 1 + 0.5 + 1) / 4), "not after step 4, not into step 6"


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
