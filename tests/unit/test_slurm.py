"""Slurm's commands and parsers, from what a real Slurm 22.05 answered to these very commands (recorded/slurm)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import Finished, NoAnswer
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm
from torusrun.orchestrator.schedulers.slurm.states import STATES
from torusrun.orchestrator.schedulers.words import filled

RECORDED = Path(__file__).parent / "recorded" / "slurm"
IDS = [str(n) for n in range(1, 18)]


def recorded(name: str) -> Finished:
    text = (RECORDED / f"{name}.txt").read_text()
    match = re.fullmatch(r"\$ (.*)\n\[exit status (\d+)\]\n\[stdout\]\n(.*)\[stderr\]\n(.*)", text, re.DOTALL)
    assert match, f"{name}: not a recording"
    return Finished(tuple(match[1].split()), int(match[2]), match[3], match[4])


def request(**changes: object) -> Request:
    values = dict(
        name="digits-1", nodes=4, ranks_per_node=2, cpus_per_rank=3, gpus_per_node=2, memory_bytes=3 * 2**30,
        time_s=90.0, queue="main", account="lab", extra=("--exclusive",),
        stdout=Path("/r/job.out"), stderr=Path("/r/job.err"),
    )  # fmt: skip
    return Request(**{**values, **changes})  # type: ignore[arg-type]


def test_the_recordings_are_of_the_commands_in_use() -> None:
    assert list(recorded("squeue_early").argv) == Slurm().status_query(IDS).command
    assert list(recorded("sacct_early").argv)[:-1] == Slurm().accounting_query(IDS).command[:-1]


def test_every_task_of_an_array_has_its_own_state_also_while_it_waits() -> None:
    said = Slurm().status_query(["2_0", "2_5"]).read(recorded("squeue_array"))
    tasks = {job: status.state for job, status in said.items() if job.startswith("2_")}
    assert tasks == {f"2_{task}": State.RUNNING if task < 2 else State.PENDING for task in range(6)}
    assert said["2"].state is State.RUNNING and "at once" in said["2_5"].reason, said["2_5"]


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("1", State.COMPLETED, "exit code 0"), ("4", State.RUNNING, ""),
        ("2", State.FAILED, "its script ended with an exit code other than 0 (Slurm: FAILED, NonZeroExitCode)"),
        ("3", State.FAILED, "Slurm could not start it, or a signal ended its script (Slurm: FAILED, JobLaunchFailure)"),
        ("6", State.CANCELLED, "cancelled, by its user or by an administrator (Slurm: CANCELLED)"),
        ("8", State.OOM, "more memory than the job had asked for (Slurm: OUT_OF_MEMORY, OutOfMemory)"),
        ("10", State.PENDING, "held by its user: `scontrol release 10` releases it (Slurm: JobHeldUser)"),
        ("11", State.PENDING, "its earliest start time has not come (Slurm: BeginTime)"),
        ("12", State.PENDING, "more nodes than the partition allows"),
        ("13", State.PENDING, "more time than the partition allows (Slurm: PartitionTimeLimit); the job cannot start"),
        ("14", State.PENDING, "its partition is down (Slurm: PartitionDown); the job cannot start like this"),
        ("15", State.PENDING, "it waits for another job to end (Slurm: Dependency)"),
        ("16", State.PENDING, "did not end as required (Slurm: DependencyNeverSatisfied); the "
        "job cannot start like this"),
        ("17", State.PENDING, "it waits for free nodes (Slurm: Resources)"),
    ],
)  # fmt: skip
def test_squeue(job: str, state: State, says: str) -> None:
    status = Slurm().status_query([]).read(recorded("squeue_early"))[job]
    assert status.state is state and says in status.reason


def test_squeue_after_a_node_was_lost_and_a_limit_reached() -> None:
    late = Slurm().status_query([]).read(recorded("squeue_late"))
    assert (late["9"].state, late["9"].reason) == (State.NODE_FAIL, "Slurm lost node4 (Slurm: NODE_FAIL, NodeDown)")
    assert late["7"].state is State.TIMEOUT and late["7"].reason.startswith("it reached its time limit (Slurm: TIME")
    assert late["17"].reason.startswith("nodes that it needs are down, drained or reserved, as for")


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("1", State.COMPLETED, "its script ended with exit code 0 (Slurm: COMPLETED)"),
        ("2", State.FAILED, "its script ended with exit code 7 (Slurm: FAILED)"),
        ("3", State.FAILED, "its script was ended by SIGSEGV (Slurm: FAILED)"),
        ("6", State.CANCELLED, "cancelled by user 1001 (Slurm: CANCELLED by 1001)"),
        ("7", State.TIMEOUT, "it reached its time limit (Slurm: TIMEOUT)"),
        ("9", State.NODE_FAIL, "Slurm lost node4 (Slurm: NODE_FAIL)"),
        ("8", State.OOM, "a process in it wanted more memory than the job had asked for (Slurm: OUT_OF_MEMORY)"),
        ("10", State.PENDING, "squeue does not show it, but Slurm's accounting says PENDING"),
    ],
)  # fmt: skip
def test_sacct(job: str, state: State, says: str) -> None:
    status = Slurm().accounting_query([]).read(recorded("sacct_late"))[job]
    assert status.state is state and says in status.reason


def test_a_job_that_accounting_does_not_know_is_absent_as_are_all_where_a_site_keeps_no_records() -> None:
    assert Slurm().accounting_query([]).read(recorded("sacct_unknown_only")) == {}
    said = Finished(("sacct",), 1, "", "Slurm accounting storage is disabled\n")
    assert Slurm().accounting_query([]).read(said) == {}


@pytest.mark.parametrize("name", ["squeue_controller_down", "sacct_database_down"])
def test_a_scheduler_that_is_down_says_nothing_about_jobs(name: str) -> None:
    parse = Slurm().status_query([]).read if name.startswith("squeue") else Slurm().accounting_query([]).read
    with pytest.raises(SiteError, match=r"Unable to contact slurm controller|Connection refused"):
        parse(recorded(name))


def test_an_unknown_state_is_shown_as_unknown_as_is_a_job_that_another_cluster_of_a_federation_took() -> None:
    status = Slurm().status_query([]).read(Finished(("squeue",), 0, "5|EXPEDITING|None|n1\n", ""))["5"]
    assert status.state is State.UNKNOWN and "EXPEDITING" in status.reason
    found = Slurm().accounting_query(["7"]).read(Finished(("sacct",), 0, "7|REVOKED|0:0|None assigned\n", ""))
    assert found["7"].state is State.UNKNOWN and "REVOKED" in found["7"].reason


@pytest.mark.parametrize("hosts", ["n[1-", "(null)", ""])
def test_a_host_list_that_cannot_be_read_hides_no_job(hosts: str) -> None:
    squeue = Finished(("squeue",), 0, f"7|RUNNING|None|{hosts}\n8|RUNNING|None|n2\n", "")
    found = Slurm().status_query(["7"]).read(squeue)
    assert {job: (one.state, one.hosts) for job, one in found.items()} == {
        "7": (State.RUNNING, ()), "8": (State.RUNNING, ("n2",)),
    }  # fmt: skip
    ended = Slurm().accounting_query(["7", "8"]).read(Finished(("sacct",), 0, f"7|COMPLETED|0:0|{hosts}\n", ""))
    assert (ended["7"].state, ended["7"].hosts) == (State.COMPLETED, ())


def test_every_state_that_squeue_documents_is_mapped() -> None:
    documented = """BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED LAUNCH_FAILED NODE_FAIL
        OUT_OF_MEMORY PENDING PREEMPTED RECONFIG_FAIL RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING
        REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT"""
    assert set(documented.split()) <= set(STATES)


BANNER = """
---------------------------------
   Welcome to the 7th Machine
---------------------------------

--> Verifying valid submit host (login4)...OK
Tue Nov 24 03:08:22 2026 [INFO4] [euid=5000,pid=6818] krb_cred: initialized
"""


def test_the_id_of_a_submitted_job_stands_beside_what_else_a_site_prints() -> None:
    assert Slurm().job_id(recorded("sbatch").stdout).isdigit()
    for printed in ("4711", "4711;alpha", "Submitted batch job 4711", " 4711 \r"):
        for text in (f"{BANNER}{printed}\n", f"{printed}\n{BANNER}"):
            assert Slurm().job_id(text) == "4711"
    assert Slurm().job_id("2026\nSubmitted batch job 4711\n") == "4711"
    for printed in ("", "2026\n4711\n"):
        with pytest.raises(SiteError, match="did not print a job id"):
            Slurm().job_id(printed)


@pytest.mark.parametrize("option", ["-M", "-Mgpu", "-M gpu", "--clusters=gpu", "--clusters", "--cluster", "--clus gpu"])
def test_a_site_submits_to_no_other_cluster_since_no_query_would_see_the_job(option: str) -> None:
    for key in ("ask", "extra", "submit_args"):
        with pytest.raises(UserError, match="write one site per cluster, and log in there or set SLURM_CONF"):
            Slurm().directives(request(**{key: (option,)}))
    assert Slurm().refuses_option("--cluster-constraint=v100") is None


@pytest.mark.parametrize(("listed", "job"), [("101\n", "101"), ("", None)])
def test_a_job_that_sbatch_gave_to_a_cluster_counts_if_squeue_shows_it_and_else_is_named(
    listed: str, job: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A federation prints the name of the own cluster, too."""
    said = {"sbatch": "101;gpu\n", "squeue": listed}
    monkeypatch.setattr(
        "torusrun.orchestrator.base.process.run", lambda argv, **_: Finished(tuple(argv), 0, said[argv[0]], "")
    )
    if job:
        assert Client(Slurm(), 5.0).submit(Path("job.sh"), request(token="digits-7")) == job
        return
    with pytest.raises(NoAnswer, match="job 101 to the cluster gpu; see `squeue -M gpu`"):
        Client(Slurm(), 5.0).submit(Path("job.sh"), request(token="digits-7"))


def test_nothing_is_submitted_while_the_users_variable_selects_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "gpu")
    with pytest.raises(UserError, match="SLURM_CLUSTERS=gpu is set.*unset it, and log in to that cluster or set SLURM"):
        Client(Slurm(), 5.0).submit(Path("job.sh"), request())


def test_the_directives() -> None:
    assert Slurm().directives(request()) == [
        f"#SBATCH {option}" for option in (
            "--job-name=digits-1", "--nodes=4", "--ntasks-per-node=2", "--cpus-per-task=3", "--time=2",
            "--output=/r/job.out", "--error=/r/job.err", "--open-mode=append", "--no-requeue", "--gres=gpu:2",
            "--mem=3072M", "--partition=main", "--account=lab", "--exclusive",
        )
    ]  # fmt: skip


def test_every_printable_value_is_one_word() -> None:
    lines = Slurm().directives(request(stdout=Path('/my "runs"/50%j/job.out')))
    assert r'#SBATCH "--output=/my \"runs\"/50%%j/job.out"' in lines, (
        "also a path with blanks, quotes and percent signs"
    )
    quoted = Slurm().directives(request(extra=('--comment=a "b" \\', "--comment=a#b'c", "--comment=\u00e9")))[-3:]
    assert quoted == [r'#SBATCH "--comment=a \"b\" \\"', """#SBATCH "--comment=a#b'c\"""", '#SBATCH "--comment=\u00e9"']


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": "-x"}, "'queue': '-x' begins with '-'"),
        ({"account": "--uid=0"}, "'account': '--uid=0' begins with '-'"),
        ({"queue": "a\n#SBATCH --uid=0"}, "a directive is one line"),
        ({"stdout": Path("/r/a\n#SBATCH -x/job.out")}, "a directive is one line"),
        ({"extra": ("--comment=" + "\u00e9" * 4000,)}, "may have 8000 bytes"),
    ],
)
def test_a_value_that_a_directive_cannot_carry_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        Slurm().directives(request(**changes))


@pytest.mark.parametrize("account", ["a b", 'a"b', "a\\", "a'b", "a,b", "a:b", "-a", "a$b", "\u00e9", "a\n"])
def test_an_account_that_is_filled_in_stays_one_plain_word(account: str) -> None:
    numbers = dict(nodes=1, ranks_per_node=1, cpus_per_rank=1, gpus=0)
    with pytest.raises(UserError, match="filled into the site's own words"):
        filled(("-g", "{account}"), **numbers, account=account)
    assert filled(("--nodes={nodes}",), **numbers, account=account) == ("--nodes=1",)
    assert filled(("-g", "{account}"), **numbers, account="gaa5-0.x") == ("-g", "gaa5-0.x")


def test_the_hosts_of_a_job_come_in_its_order() -> None:
    assert Slurm().hosts({"SLURM_JOB_NODELIST": "node[1-2,4]"}, "node1") == ["node1", "node2", "node4"]
    with pytest.raises(SiteError, match="not inside a Slurm job"):
        Slurm().hosts({}, "login")


def test_records_without_an_answer_leave_a_job_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"squeue": Finished(("squeue",), 0, "", ""), "sacct": recorded("sacct_database_down")}
    monkeypatch.setattr("torusrun.orchestrator.base.process.run", lambda argv, timeout_s: answers[argv[0]])
    status = Client(Slurm(), 10).poll(["7"])["7"]
    assert status.state is State.UNKNOWN and "accounting did not answer" in status.reason


def test_a_job_waits_for_others_and_is_dropped_with_them() -> None:
    lines = Slurm().directives(request(after=("5", "6")))
    assert "#SBATCH --dependency=afterok:5:6" in lines and "#SBATCH --kill-on-invalid-dep=yes" in lines
    assert "#SBATCH --dependency=afterany:7" in Slurm().directives(request(after_any=("7",)))
    both = Slurm().directives(request(after=("5",), after_any=("7", "8")))
    assert "#SBATCH --dependency=afterok:5,afterany:7:8" in both


def test_hosts_that_turn_bad_are_left_out_of_the_tasks_that_wait_unless_the_sites_own_words_have_a_list() -> None:
    bad = request(exclude=("n3", "n7"))
    assert "#SBATCH --exclude=n3,n7" in Slurm().directives(bad)
    assert Slurm().leave_out_command("7", None, bad) == ["scontrol", "update", "JobId=7", "ExcNodeList=n3,n7"]
    assert Slurm().leave_out_command("7", (1, 4), bad) == ["scontrol", "update", "JobId=7_[1-4]", "ExcNodeList=n3,n7"]
    for words in ({"extra": ("--exclude=n9",)}, {"submit_args": ("-x", "n9")}):
        assert Slurm().leave_out_command("7", (1, 4), replace(bad, **words)) is None


def test_a_site_asks_in_its_own_words_or_says_the_type_of_its_gpus() -> None:
    lines = Slurm().directives(request(ask=("--nodes=4", "--gres=gpu:v100:4")))
    assert "#SBATCH --gres=gpu:v100:4" in lines and not any("ntasks" in line or "gpu:2" in line for line in lines)
    assert "#SBATCH --gres=gpu:v100:2" in Slurm().directives(request(gpus_per_node=2, gpu_type="v100"))


def test_an_ended_array_is_as_its_last_task_that_ran_in_whatever_order_squeue_lists_them() -> None:
    lines = ["7_[11-19%1]|CANCELLED|None|", "7_10|NODE_FAIL|NodeDown|n2"]
    lines += ["7_2|TIMEOUT|TimeLimit|n1", "7_0|FAILED|None|n1"]
    for order in (lines, lines[::-1]):
        said = Finished(("squeue",), 0, "\n".join(order), "")
        assert Slurm().status_query([]).read(said)["7"].state is State.NODE_FAIL


# Slurm's words for waiting and ended jobs become sentences, and stay in them for whoever looks them up.


def said_by_squeue(state: str, reason: str, nodes: str = "") -> Status:
    """The status of a job that squeue shows so."""
    return Slurm().status_query([]).read(Finished(("squeue",), 0, f"5|{state}|{reason}|{nodes}\n", ""))["5"]


def test_of_several_nodes_none_is_named_as_the_lost_one() -> None:
    """Recorded: a job on node[5-6] whose node6 died, which both squeue and sacct show with both nodes."""
    lost = said_by_squeue("NODE_FAIL", "NodeDown", "node[5-6]").reason
    assert lost.startswith("Slurm lost at least one of its nodes (node5, node6)")
    ending = said_by_squeue("COMPLETING", "NodeDown", "node[5-6]")
    assert ending.state is State.RUNNING and "being ended: Slurm lost at least one of its nodes" in ending.reason
    alone = said_by_squeue("COMPLETING", "NodeDown", "node1")
    assert "Slurm lost at least one of its nodes" in alone.reason and "node1" not in alone.reason, (
        "recorded of a job on node[1-2] whose node2 died: of one that is completing squeue shows what still cleans up"
    )
    many = said_by_squeue("NODE_FAIL", "NodeDown", "n[1-100]").reason
    assert "n8 and 92 more)" in many and "n9" not in many


def test_a_job_that_was_cancelled_while_it_waited_does_not_name_that_as_the_cause() -> None:
    for waited_for in ("Resources", "Priority", "Dependency", "AssocGrpGRES", "Anything at all"):
        status = said_by_squeue("CANCELLED", waited_for)
        assert status.state is State.CANCELLED
        assert status.reason == f"cancelled while it waited: it never ran (Slurm: CANCELLED; before: {waited_for})"
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
    requeued = said_by_squeue("REQUEUED", "BeginTime").reason
    assert requeued.startswith("Slurm has put it back into the queue; its earliest start time has not come (Slurm: REQ")
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
