"""The plan of an attempt: a function of the run's plan, the ledger's events and what the user changes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.run import RunSpec, Train
from torusrun.orchestrator.keys.site import Node, Site
from torusrun.orchestrator.run.folder.events import Changes, Ended, Event, Refused, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan, changes, derive
from torusrun.orchestrator.run.plan.plan import Plan

SITE = Site(scheduler="slurm", launcher="srun", node=Node(ranks=4), stop_before_s=60.0)
RUN = RunSpec("x", "site.yaml", nodes=2, grid=(4, 2), time_s=3600.0, train=Train(batch=64))
PLAN = Plan("x-1", RUN, SITE, Path("/runs/x-1"), "/usr/bin/python3")

# Every one of these fits the run: 64 images divide by 4, 8, 16 and 32 ranks.
SHAPES = [(1, (4, 1)), (1, (2, 2)), (2, (4, 2)), (2, (8, 1)), (4, (4, 4)), (8, (8, 4))]
SHAPE = st.sampled_from([(None, None), *SHAPES])
TIME_S = st.none() | st.integers(61, 10**6).map(float)
EXCLUDE = st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), max_size=3, unique=True).map(tuple)
CHANGES = st.builds(lambda time_s, shape, exclude: Changes(time_s, *shape, exclude), TIME_S, SHAPE, EXCLUDE)
ATTEMPTS = st.lists(st.tuples(CHANGES, st.booleans()), max_size=5)  # and whether the scheduler took it


def history(attempts: list[tuple[Changes, bool]]) -> tuple[list[Event], int]:
    """The ledger of these attempts, and the number of the next: a refused one leaves its number to the next."""
    events: list[Event] = []
    number = 1
    for made, taken in attempts:
        events.append(Submitting(number, f"x-1.{number}", changes=made))
        if taken:
            events += [Submitted(number, str(number)), Started(number, str(number), ("n1",))]
            events.append(Ended(number, State.FAILED, "rank 1 was killed"))
        else:
            events.append(Refused(number, "no such queue"))
        number += taken
    return events, number


@given(ATTEMPTS, CHANGES)
@settings(max_examples=100, deadline=None)
def test_the_newest_change_of_a_value_holds_and_excluded_hosts_stay_excluded(
    attempts: list[tuple[Changes, bool]], now: Changes
) -> None:
    events, number = history(attempts)
    derived = derive(PLAN, events, number, now)
    made = [change for change, taken in attempts if taken] + [now]
    times = [PLAN.run.time_s, *(change.time_s for change in made if change.time_s is not None)]
    shapes = [(2, (4, 2)), *((change.nodes, change.grid) for change in made if change.nodes)]
    assert derived.number == number and derived.changes == now
    assert derived.plan.run.time_s == times[-1]
    assert (derived.plan.run.nodes, derived.plan.run.grid) == shapes[-1]
    assert list(derived.exclude) == list(dict.fromkeys(host for change in made for host in change.exclude))
    same = replace(derived.plan.run, time_s=RUN.time_s, nodes=RUN.nodes, grid=RUN.grid)
    assert replace(derived.plan, run=same) == PLAN, "nothing but time, nodes and grid may change"


@given(ATTEMPTS)
@settings(max_examples=100, deadline=None)
def test_what_an_attempt_had_does_not_depend_on_what_came_later(attempts: list[tuple[Changes, bool]]) -> None:
    events, number = history(attempts)
    for earlier in range(1, number):
        last = next(e for e in reversed(events) if isinstance(e, Submitting) and e.attempt == earlier)
        before = events[: events.index(last)]
        assert derive(PLAN, events, earlier, last.changes) == derive(PLAN, before, earlier, last.changes)


@given(ATTEMPTS, CHANGES)
@settings(max_examples=50, deadline=None)
def test_the_plan_of_an_attempt_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[tuple[Changes, bool]], now: Changes
) -> None:
    events, number = history(attempts)
    run = RunFolder(tmp_path_factory.mktemp("run"))
    derived = derive(replace(PLAN, folder=run.folder), events, number, now)
    run.attempt(number).folder.mkdir(parents=True)
    plan_files.write_attempt(run.attempt(number), derived)
    assert plan_files.read_attempt(run, number) == derived


def test_changes_that_the_ledger_lost_are_taken_from_the_attempts_plans(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    changed = Changes(time_s=7200.0, exclude=("n7",))
    run.attempt(1).folder.mkdir(parents=True)
    plan_files.write_attempt(run.attempt(1), derive(replace(PLAN, folder=run.folder), [], 1, changed))
    derived = derive(PLAN, plan_files.history(run, []), 2, Changes())
    assert (derived.plan.run.time_s, derived.exclude) == (7200.0, ("n7",))


@pytest.mark.parametrize("damage", [{"changes": {"nodes": "2"}}, {"exclude": "n1"}, {"changes": None}, {"schema": 2}])
def test_a_damaged_plan_of_an_attempt_is_not_believed(damage: dict[str, object], tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.attempt(1).folder.mkdir(parents=True)
    plan_files.write_attempt(run.attempt(1), AttemptPlan(1, PLAN))
    path = run.attempt(1).plan
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(SiteError, match=str(path)):
        plan_files.read_attempt(run, 1)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"time": "soon"}, "--time: 'soon' is not a duration"),
        ({"time": "30s"}, "--time 30s: must be longer than the site's stop_before (60s)"),
        ({"nodes": 0}, "--nodes must be at least 1, not 0"),
        ({"nodes": 4}, "--nodes 4: 'grid': a grid of 4x2 has 8 ranks, the run has 16; these fit: "),
        ({"nodes": 4}, "; give --grid as well"),
        ({"nodes": 3, "grid": "4x3"}, "--nodes 3: 'train.batch' 64 does not divide by 12 ranks"),
        ({"grid": "3x3"}, "--grid 3x3: a grid of 3x3 has 9 ranks, the run has 8; these fit: "),
        ({"grid": "wide"}, "--grid: 'wide' is not a grid"),
        ({"exclude": ["n1;rm"]}, "--exclude: 'n1;rm' is not a name of a host"),
        ({"exclude": ["n[1-"]}, "--exclude: "),
        ({"exclude": ["-n"]}, "--exclude: '-n' is not a name of a host"),
    ],
)
def test_a_change_that_does_not_fit_is_refused_by_the_name_of_its_option(made: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as refused:
        derive(PLAN, [], 2, changes(**made))  # type: ignore[arg-type]
    assert says in str(refused.value)
    assert "; try " not in str(refused.value), "the batch of a run is not changed by resuming it"


@pytest.mark.parametrize(("name", "says"), [("pbs", "PBS has no"), ("local", "only this machine")])
def test_a_scheduler_that_cannot_leave_out_hosts_says_so(name: str, says: str) -> None:
    run = replace(RUN, nodes=1, grid=(4, 1))
    with pytest.raises(UserError, match=f"--exclude: .*{says}"):
        derive(replace(PLAN, run=run, site=replace(SITE, scheduler=name)), [], 2, Changes(exclude=("n1",)))


def test_host_lists_are_expanded() -> None:
    assert changes(exclude=["n[1-3]", "m7,n2"]).exclude == ("n1", "n2", "n3", "m7")
