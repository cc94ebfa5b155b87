"""How long an attempt may be without progress: no false end in a million steps, and every hang within its limit."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from tests.unit.replayed_steps import LATEST_S, Activity, Seen, false_end, recorded, synthetic, with_pauses
from torusrun.orchestrator.job.hangs.patience import (
    CONFIRM_S,
    FEWEST,
    GAP_S,
    LEAST_S,
    NEVER,
    OTHER_S,
    REPORTS,
    REPORTS_S,
    SILENT_S,
    UNKNOWN,
    UNSEEN_S,
    WORK_S,
    Patience,
    Sign,
    Symptom,
)
from torusrun.training.reporting.heartbeat import CHECKPOINT, EVALUATION, FIRST_STEP, STEPS

REAL = recorded()
STEPS_REPLAYED = 1_000_000
THREE_TIMES_FASTER_S = sum(one.seconds for one in REAL if one.doing == STEPS) / len(REAL) / 3
LATE_S = 2 * LATEST_S + 1.0  # for the file, and for two looks


def stepping(usual_s: float, steps: int = 40) -> Patience:
    """The patience with an attempt whose steps take `usual_s`, at its newest step."""
    patience = Patience(0.0, None, OTHER_S, OTHER_S)
    for step in range(steps):
        for part in range(max(round(usual_s), 1)):
            patience.observe(step * usual_s + part * min(usual_s, 1.0), Sign(STEPS, step))
    return patience


def ended_s(patience: Patience, sign: Sign, shown: Symptom, from_s: float, disk: bool = True) -> float:
    """How long after the newest sign the attempt is ended, if its ranks show this; at most five hours."""
    for seconds in range(1, 20_000):
        patience.observe(from_s + seconds, sign, counts=disk)
        if patience.asks():
            patience.answered(shown)
        if patience.over:
            return float(seconds)
    return NEVER


def test_a_million_recorded_steps_with_pauses_of_disks_and_networks_end_nothing(chance: random.Random) -> None:
    assert sum(one.doing == STEPS for one in REAL) > 2000
    replayed = 0
    while replayed < STEPS_REPLAYED:  # in attempts, since each learns from its own pauses
        attempt = list(with_pauses(REAL * 5, chance, every=2000))
        replayed += sum(one.doing == STEPS for one in attempt)
        assert false_end(attempt, chance, THREE_TIMES_FASTER_S) == ""


@pytest.mark.parametrize("usual_s", [0.5, 2.0, 6.0])
def test_an_attempt_three_times_slower_than_the_one_before_is_not_ended_before_its_own_steps_are_known(
    usual_s: float, chance: random.Random
) -> None:
    """Not even if its ranks seem to be stopped in each of its first steps, of up to nine usual ones."""
    for _ in range(200):
        first = list(islice(synthetic(chance, 1000, usual_s), FEWEST + 1))
        assert false_end(first, chance, usual_s / 3, Symptom.STOPPED) == ""


@pytest.mark.parametrize(("former_s", "limit_s"), [(0.01, LEAST_S), (1.0, 30.0), (9.0, SILENT_S), (None, SILENT_S)])
def test_right_after_a_restart_the_steps_of_the_attempt_before_say_how_long_a_stopped_process_has(
    former_s: float | None, limit_s: float
) -> None:
    def again(*signs: Sign) -> Patience:
        patience = Patience(0.0, None, OTHER_S, OTHER_S, former_s)
        for second, sign in enumerate([Sign(FIRST_STEP, 0), Sign(STEPS, 1), *signs], 1 - len(signs)):
            patience.observe(float(second), sign)
        return patience

    assert limit_s <= ended_s(again(Sign(STEPS, 2)), Sign(STEPS, 2), Symptom.STOPPED, 2.0) <= limit_s + LATE_S
    assert ended_s(again(Sign(STEPS, 2)), Sign(STEPS, 2), Symptom.WAITING, 2.0) == OTHER_S
    later_phase = again(Sign(FIRST_STEP, 2), Sign(STEPS, 3))
    assert ended_s(later_phase, Sign(STEPS, 3), Symptom.STOPPED, 2.0) == SILENT_S, "its steps may be others"


@pytest.mark.parametrize("usual_s", [0.02, 0.3, 2.0, 6.0])
def test_heavy_tails_evaluations_and_slower_phases_end_nothing(usual_s: float, chance: random.Random) -> None:
    steps = round(min(40_000, 10_000 / usual_s))
    activities = list(synthetic(chance, steps, usual_s))
    assert false_end(list(with_pauses(activities, chance, every=500)), chance) == ""


def test_these_replays_can_fail(chance: random.Random) -> None:
    """A pause of a network beyond the limit is no different from a hang."""
    long = Activity(STEPS, 60.0)
    assert "at " in false_end([*REAL[:2000], long, *REAL[:9]], chance)
    assert false_end([*REAL[:2000], Activity(CHECKPOINT, 60.0), *REAL[:9]], chance) == ""


@pytest.mark.parametrize(("shown", "times", "least_s"), [
    (Symptom.STOPPED, 10, LEAST_S), (Symptom.SILENT, 20, 2 * LEAST_S), (Symptom.WAITING, 20, 2 * LEAST_S),
    (Symptom.WORKING, 20, WORK_S), (Symptom.UNSEEN, 20, UNSEEN_S),
])  # fmt: skip
@pytest.mark.parametrize("usual_s", [0.01, 0.7, 3.0, 40.0])
def test_every_hang_ends_within_its_limit(usual_s: float, shown: Symptom, times: int, least_s: float) -> None:
    steps = round(60 + 10 / usual_s)
    seen = Seen([*[Activity(STEPS, usual_s)] * steps, Activity(STEPS, 1e5)], random.Random(1), shown)
    patience, began_s = Patience(0.0, None, OTHER_S, OTHER_S), steps * usual_s
    took_s = next(at_s for at_s in seen.looks(patience) if patience.over) - began_s
    limit_s = max(least_s, times * max(usual_s, 1.0))
    assert 0.97 * limit_s - 1.0 <= took_s <= 1.2 * limit_s + LATE_S
    assert seen.queries_s[0] - began_s <= max(LEAST_S, 12 * usual_s) / 2 + LATE_S
    assert len(seen.queries_s) < 10


def test_a_pause_that_ended_by_itself_may_be_followed_by_a_longer_one() -> None:
    patience = stepping(0.5)
    for second in range(15):
        patience.observe(20.0 + second, Sign(STEPS, 40))
    patience.observe(36.0, Sign(STEPS, 41))
    assert ended_s(patience, Sign(STEPS, 41), Symptom.STOPPED, 36.0) >= 2 * 15


def test_the_usual_time_is_known_although_a_checkpoint_follows_every_look() -> None:
    patience = Patience(0.0, None, OTHER_S, OTHER_S)
    for second in range(14):
        patience.observe(float(second), Sign((STEPS, CHECKPOINT)[second % 2], 25 * second))
    patience.observe(14.0, Sign(STEPS, 400))
    assert ended_s(patience, Sign(STEPS, 400), Symptom.STOPPED, 14.0) <= LEAST_S + LATE_S


def test_time_in_which_the_disk_or_the_supervisor_stood_still_does_not_count() -> None:
    patience = stepping(0.5)
    patience.observe(1000.0, Sign(STEPS, 39))
    assert patience.idle_s <= GAP_S
    assert ended_s(patience, Sign(STEPS, 39), Symptom.WAITING, 1000.0, disk=False) == NEVER


def test_an_evaluation_has_a_limit_of_its_own_and_later_ones_a_shorter_one() -> None:
    first, later = stepping(0.5), stepping(0.5)
    first.observe(20.0, Sign(EVALUATION, 40))
    assert ended_s(first, Sign(EVALUATION, 40), Symptom.WAITING, 20.0) == OTHER_S
    later.observe(20.0, Sign(EVALUATION, 40))
    later.observe(22.0, Sign(STEPS, 40))
    later.observe(23.0, Sign(EVALUATION, 41))
    assert 50 < ended_s(later, Sign(EVALUATION, 41), Symptom.WAITING, 23.0) < 100


def test_the_limit_that_a_run_names_is_kept_to_the_letter() -> None:
    for doing in (STEPS, EVALUATION):
        patience = Patience(0.0, 1800.0, OTHER_S, 1800.0)
        for second in range(100):
            patience.observe(second, Sign(doing, second))
        assert {ended_s(patience, Sign(doing, 99), shown, 99.0) for shown in Symptom} == {1800.0}
        assert patience.limits.host_s == SILENT_S
        patience.observe(5e5, Sign(doing, 100))
        patience.observe(5e5 + 1800.0, Sign(doing, 100))
        patience.answered(Symptom.WORKING)
        patience.observe(5e5 + 1804.0, Sign(doing, 100))
        assert patience.over, "the supervisor's own pauses count, too"


@pytest.mark.parametrize("shown", Symptom)
def test_a_program_without_a_sign_is_ended_only_if_it_is_stopped_or_nobody_answers_for_it(shown: Symptom) -> None:
    mute, surely = Patience(0.0, None, NEVER, NEVER), shown in (Symptom.STOPPED, Symptom.SILENT)
    assert ended_s(mute, Sign(UNKNOWN, None), shown, 0.0) == (OTHER_S + CONFIRM_S if surely else NEVER)
    assert mute.limits.host_s == SILENT_S


@pytest.mark.parametrize("pauses", range(FEWEST))
def test_a_program_with_fewer_heartbeats_than_its_usual_step_needs_is_ended_too(pauses: int) -> None:
    def after(doing: str) -> Patience:
        patience = Patience(0.0, None, NEVER, NEVER)
        for second in range(pauses + 1):
            patience.observe(float(second), Sign(doing, second))
        return patience

    def took_s(doing: str, shown: Symptom) -> float:
        return ended_s(after(doing), Sign(doing, pauses), shown, float(pauses))

    certain = {Symptom.STOPPED: SILENT_S, Symptom.SILENT: SILENT_S}
    for shown in Symptom:
        assert certain.get(shown, OTHER_S) <= took_s(STEPS, shown) <= certain.get(shown, OTHER_S) + LATE_S
        assert took_s(REPORTS, shown) <= certain.get(shown, NEVER) + LATE_S
        assert took_s(REPORTS, shown) >= certain.get(shown, NEVER)


def test_a_program_with_reports_is_ended_late() -> None:
    reports = Patience(0.0, None, NEVER, NEVER)
    for second in range(FEWEST + 1):
        reports.observe(float(second), Sign(REPORTS, second))
    assert ended_s(reports, Sign(REPORTS, FEWEST), Symptom.WAITING, float(FEWEST)) == REPORTS_S
