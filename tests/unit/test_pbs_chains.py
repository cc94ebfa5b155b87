"""The array of a run that keeps going, one task at a time: what a real OpenPBS answered (recorded/openpbs/chain)."""

import pytest

from tests.unit.test_pbs import only, transcripts
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS


def answered(name: str) -> Finished:
    (found,) = transcripts(f"chain/{name}.txt")
    return found


@pytest.mark.parametrize(
    ("name", "state", "says"),
    [
        ("none_begun", State.PENDING, ""),
        ("first_second", State.RUNNING, ""),  # its letter is still Q
        ("one_runs", State.RUNNING, ""),
        ("none_runs", State.PENDING, ""),  # between two tasks
        ("waiting_deleted", State.RUNNING, ""),
        ("running_deleted", State.PENDING, ""),  # the next task is to begin
        ("held_while_one_runs", State.RUNNING, ""),
        ("requeued_after_loss", State.PENDING, ""),
        ("runs_again_after_loss", State.RUNNING, ""),
        ("deleted_and_ending", State.RUNNING, ""),
        ("ended_history", State.COMPLETED, ""),
        ("failed_history", State.FAILED, "exit code 1"),
        ("deleted_history", State.CANCELLED, "deleted before it started"),
    ],
)
def test_an_array_is_what_its_tasks_do_whatever_its_letter(name: str, state: State, says: str) -> None:
    said = answered(name)
    status = only(PBS().status_query([]).read(said))
    assert said.argv[-1].endswith("[].pbs1") and status.state is state and says in status.reason, status


@pytest.mark.parametrize("name", ["ended", "ended_no_history"])
def test_an_array_that_is_over_leaves_the_answer(name: str) -> None:
    assert PBS().status_query([]).read(answered(name)) == {}


def test_the_tasks_that_are_not_needed_are_deleted_as_pbs_takes_it() -> None:
    assert answered("range_of_one_refused").exit_code == 156
    for name, first, last in (("range_deleted", 4, 5), ("task_deleted", 1, 1)):
        said = answered(name)
        array = said.argv[1].partition("[")[0] + "[].pbs1"
        assert (PBS().cancel_tasks_command(array, first, last), said.exit_code) == (list(said.argv), 0)


def test_a_task_whose_first_host_is_gone_is_deleted_by_force_because_the_server_refuses_otherwise() -> None:
    refused, forced = answered("lost_refused"), answered("lost_forced")
    assert (PBS().cancel_command(refused.argv[1]), refused.exit_code) == (list(refused.argv), 222)
    assert (PBS().after_loss_command(refused.argv[1], 1), forced.exit_code) == (list(forced.argv), 0)

    (task,) = PBS().status_query([]).read(answered("lost_forced_task")).values()
    assert task == Status(State.CANCELLED, "deleted by its user, alice@pbs1", ("hnode001", "hnode002"))


def test_an_arrays_id_is_read_and_is_that_in_its_tasks() -> None:
    job = PBS().job_id(answered("qsub").stdout)
    inside = dict(line.split("=", 1) for line in answered("environment").stdout.splitlines())
    assert PBS().own_job(inside) == job == "2[].pbs1"
    assert PBS().task_id(job, PBS().own_task(inside) or 0) == inside["PBS_JOBID"]
