"""Slurm's words for waiting and ended jobs become sentences, and stay in them for whoever looks them up."""

import pytest

from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm


def said_by_squeue(state: str, reason: str, nodes: str = "") -> Status:
    """The status of a job that squeue shows so."""
    return Slurm().status_query([]).read(Finished(("squeue",), 0, f"5|{state}|{reason}|{nodes}\n", ""))["5"]


def test_of_several_nodes_none_is_named_as_the_lost_one() -> None:
    """Recorded: a job on node[5-6] whose node6 died, which both squeue and sacct show with both nodes."""
    assert said_by_squeue("NODE_FAIL", "NodeDown", "node[5-6]").reason.startswith(
        "Slurm lost at least one of its nodes (node5, node6)"
    )
    ending = said_by_squeue("COMPLETING", "NodeDown", "node[5-6]")
    assert ending.state is State.RUNNING and "being ended: Slurm lost at least one of its nodes" in ending.reason
    alone = said_by_squeue("COMPLETING", "NodeDown", "node1")
    assert "Slurm lost at least one of its nodes" in alone.reason and "node1" not in alone.reason, (
        "recorded of a job on node[1-2] whose node2 died: of one that is completing squeue shows what still cleans up"
    )
    many = said_by_squeue("NODE_FAIL", "NodeDown", "n[1-100]").reason
    assert "n8 and 92 more)" in many and "n9" not in many


@pytest.mark.parametrize("waited_for", ["Resources", "Priority", "Dependency", "AssocGrpGRES", "Anything at all"])
def test_a_job_that_was_cancelled_while_it_waited_does_not_name_that_as_the_cause(waited_for: str) -> None:
    status = said_by_squeue("CANCELLED", waited_for)
    assert status.state is State.CANCELLED
    assert status.reason == f"cancelled while it waited: it never ran (Slurm: CANCELLED; before: {waited_for})"


def test_a_job_that_its_dependency_dropped_says_so() -> None:
    assert said_by_squeue("CANCELLED", "DependencyNeverSatisfied").reason.startswith("dropped by its dependency")


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("None", ""),
        ("ReqNodeNotAvail, UnavailableNodes:node[3-4]", "maintenance (Slurm: ReqNodeNotAvail, UnavailableNodes:node[3"),
        ("QOSMaxNodePerUserLimit", "its user has reached a limit of this quality of service"),
        ("QOSMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit); the job cannot start like this"),
        ("AssocGrpCPURunMinutesLimit", "its account uses as much as allowed (Slurm: AssocGrpCPURunMinutesLimit)"),
        ("AssocMaxJobsLimit", "its user's jobs have reached a limit of this account"),
        ("MaxGRESPerAccount", "its account uses as much as allowed (Slurm: MaxGRESPerAccount)"),
        ("JobHeldAdmin", "held by an administrator"),
        ("Licenses", "it waits for a license (Slurm: Licenses)"),
        ("ANewReason", "Slurm says: ANewReason"),
        ("a sentence | of a plug-in", "Slurm says: a sentence | of a plug-in"),
    ],
)
def test_why_a_job_waits(reason: str, says: str) -> None:
    status = said_by_squeue("PENDING", reason)
    assert status.state is State.PENDING and says in status.reason and bool(says) == bool(status.reason)


def test_a_job_that_went_back_into_the_queue_says_so() -> None:
    assert said_by_squeue("REQUEUED", "BeginTime").reason == (
        "Slurm has put it back into the queue; its earliest start time has not come (Slurm: REQUEUED, BeginTime)"
    )
    assert "`scontrol release 5` releases it" in said_by_squeue("REQUEUE_HOLD", "None").reason


def test_every_reason_that_the_manual_lists_means_something() -> None:
    """squeue(1) of 22.05, JOB REASON CODES, with one of each kind that it writes with a star."""
    documented = """AssocGrpNodeLimit AssociationJobLimit AssocMaxNodePerJobLimit AssociationResourceLimit
        AssociationTimeLimit BadConstraints BeginTime Cleaning Dependency DependencyNeverSatisfied FrontEndDown
        InvalidAccount InvalidQOS JobHeldAdmin JobHeldUser Licenses PartitionDown PartitionInactive PartitionNodeLimit
        PartitionTimeLimit Priority Prolog QOSGrpNodeLimit QOSJobLimit QOSMaxNodePerUserLimit QOSResourceLimit
        QOSTimeLimit QOSUsageThreshold ReqNodeNotAvail Reservation Resources SystemFailure WaitingForScheduling"""
    for reason in documented.split():
        assert said_by_squeue("PENDING", reason).reason.partition(" (Slurm: ")[0] not in ("", f"Slurm says: {reason}")
    for reason in ("InactiveLimit", "JobLaunchFailure", "NonZeroExitCode", "SystemFailure"):
        assert said_by_squeue("FAILED", reason, "n1").reason.endswith(f" (Slurm: FAILED, {reason})")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("CANCELLED by 1001|0:0|None assigned", "cancelled by user 1001 before it started: it never ran"),
        ("CANCELLED by 0|0:15|n1", "cancelled by root (Slurm: CANCELLED by 0)"),
        ("CANCELLED|0:0|n1", "cancelled (Slurm: CANCELLED)"),
        ("FAILED|0:53|n1", "Slurm could not start it, as when its output files cannot be opened"),
        ("FAILED|0:64|n1", "its script was ended by SIGRTMAX"),
        ("FAILED|0:99|n1", "its script was ended by signal 99"),
        ("NODE_FAIL|0:0|node[5-6]", "Slurm lost at least one of its nodes (node5, node6) (Slurm: NODE_FAIL)"),
        ("PREEMPTED|0:15|n1", "Slurm took its nodes for a job of higher priority (Slurm: PREEMPTED)"),
    ],
)
def test_how_a_job_ended_by_accounting(row: str, says: str) -> None:
    status = Slurm().accounting_query([]).read(Finished(("sacct",), 0, f"5|{row}\n", ""))["5"]
    assert status.state.over and says in status.reason
