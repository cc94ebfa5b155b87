"""Grid Engine's commands and parsers, from what a real 8.1.9 answered to these very commands (recorded/gridengine)."""

import re
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.schedulers.gridengine import facts
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine

RECORDED = Path(__file__).parent / "recorded" / "gridengine"
ENGINE = GridEngine("labuser")
IDS = [str(n) for n in range(1, 1001)]
WAITING = "qw Rq hqw hRwq Eqw Ehqw EhRqw Rt Rts RtS RtT dRt"  # sge_status(5)
RUNNING = "r hr t Rr s ts S tS T tT Rs RS RT dr dt dRr ds dS dT dRs dRS dRT"


def recorded(name: str) -> Finished:
    text = (RECORDED / f"{name}.txt").read_text()
    match = re.fullmatch(r"\$ (.*)\n\[exit status (\d+)\]\n\[stdout\]\n(.*)\[stderr\]\n(.*)", text, re.DOTALL)
    assert match, f"{name}: not a recording"
    return Finished(tuple(match[1].split()), int(match[2]), match[3], match[4])


def qstat(state: str) -> Finished:
    """qstat about one job in this state."""
    job = f"<job_list><JB_job_number>5</JB_job_number><state>{state}</state></job_list>"
    return Finished(("qstat",), 0, f"<job_info><job_info>{job}</job_info></job_info>", "")


def qacct(**values: str) -> Finished:
    """qacct about one job whose record holds these values."""
    lines = [f"{key:<12} {value}" for key, value in {"jobnumber": "5", **values}.items()]
    return Finished(("qacct",), 0, "\n".join(["=" * 62, *lines, ""]), "")


def test_the_id_of_a_submitted_job() -> None:
    assert ENGINE.job_id(recorded("qsub").stdout) == "1"
    assert ENGINE.job_id(recorded("qsub_array").stdout) == "9"
    assert ENGINE.job_id("a site's greeting\n17\n2 jobs of yours wait\n") == "17"
    assert ENGINE.job_id('Your job 28 ("digits-1") has been submitted\n') == "28"
    assert ENGINE.job_id('Your job-array 20.1-3:1 ("digits-1") has been submitted\n') == "20"


def test_an_answer_of_qsub_without_an_id_is_an_error() -> None:
    for printed in ("", "Your job was refused\n", "17\n28\n"):
        with pytest.raises(SiteError, match="see qstat"):
            ENGINE.job_id(printed)


def test_grid_engine_numbers_tasks_from_1() -> None:
    assert ENGINE.task_id("12", 3) == "12.4"


def test_the_recordings_are_of_the_commands_in_use() -> None:
    assert list(recorded("qstat").argv) == ENGINE.status_query(IDS).command
    assert list(recorded("qacct").argv) == ENGINE.accounting_query(IDS).command
    assert list(recorded("qacct_one").argv) == ENGINE.accounting_query(["2"]).command


def test_a_thousand_jobs_are_one_command_and_the_tasks_of_an_array_one_job() -> None:
    assert len(ENGINE.status_query(IDS).command) < 12 and len(ENGINE.accounting_query(IDS).command) < 12
    assert ENGINE.accounting_query(["12.1", "12.2"]).command == ["qacct", "-o", "labuser", "-j", "12"]


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("18", State.RUNNING, ""), ("20.1", State.RUNNING, ""), ("20.3", State.PENDING, ""), ("25", State.PENDING, ""),
        ("19", State.RUNNING, ""), ("21", State.PENDING, "held: qrls 21 releases it"),
        ("22", State.PENDING, "it waits for job 18, 21"), ("23", State.RUNNING, ""),  # waits for a job that is not
        ("24", State.PENDING, "qstat -j 24 says why); the job cannot start like this"),
        ("26", State.RUNNING, "suspended by qmod"), ("27", State.PENDING, "rescheduled"),
        ("29", State.RUNNING, "being deleted"),
    ],
)  # fmt: skip
def test_qstat(job: str, state: State, says: str) -> None:
    status = ENGINE.status_query([]).read(recorded("qstat"))[job]
    assert status.state is state and says in status.reason and bool(says) == bool(status.reason)


def test_qstat_reports_the_hosts_and_no_task_that_is_not_one() -> None:
    found = ENGINE.status_query([]).read(recorded("qstat"))
    assert found["19"].hosts == ("node2", "node3", "node4") and found["20.3"].hosts == ()
    assert found["20"].state is State.RUNNING, "the array as a whole"


@pytest.mark.parametrize(
    ("job", "says"),
    [("30", "node3 does not answer"), ("31", "being deleted; node3 does not"), ("33", "node3 does not answer")],
)
def test_a_job_on_a_host_that_went_down_is_shown_as_running(job: str, says: str) -> None:
    status = ENGINE.status_query([]).read(recorded("qstat_silent"))[job]
    assert status.state is State.RUNNING and says in status.reason


def test_a_parallel_job_that_lost_a_host_says_so_though_grid_engine_calls_it_running() -> None:
    found = ENGINE.status_query([]).read(recorded("qstat_silent"))
    assert found["19"].reason == "node3 does not answer Grid Engine" and found["18"].reason == ""


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        *((word, State.PENDING) for word in WAITING.split()),
        *((word, State.RUNNING) for word in RUNNING.split()),
    ],
)
def test_every_state_that_grid_engine_documents_is_known(letters: str, state: State) -> None:
    assert ENGINE.status_query([]).read(qstat(letters))["5"].state is state


@pytest.mark.parametrize("letters", ["P", "", "zz"])
def test_an_unknown_state_is_shown_as_unknown_with_its_letters(letters: str) -> None:
    status = ENGINE.status_query([]).read(qstat(letters))["5"]
    assert status.state is State.UNKNOWN and repr(letters) in status.reason


def test_a_rescheduled_job_on_its_way_to_its_hosts_has_not_begun_again() -> None:
    """It can hang there, and what its first start did says nothing of its progress."""
    status = ENGINE.status_query([]).read(qstat("Rt"))["5"]
    assert status.reason == "rescheduled; being sent to its hosts (Grid Engine: Rt)"


def test_no_jobs_is_an_answer_but_a_failed_qstat_is_not() -> None:
    assert ENGINE.status_query([]).read(recorded("qstat_nothing")) == {}
    with pytest.raises(SiteError, match="unable to send message to qmaster"):
        ENGINE.status_query([]).read(recorded("qstat_down"))


@pytest.mark.parametrize("cut", [0, 300])
def test_xml_that_is_cut_off_says_nothing_about_jobs(cut: int) -> None:
    with pytest.raises(SiteError, match="XML cannot be read"):
        ENGINE.status_query([]).read(Finished(("qstat",), 0, recorded("qstat").stdout[:cut], ""))


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("1", State.COMPLETED, "exit status 0"), ("2", State.FAILED, "exit status 7"),
        ("3", State.FAILED, "ended by SIGSEGV"), ("4", State.FAILED, "a program in it ended by SIGKILL"),
        ("5", State.FAILED, "application error"), ("6", State.TIMEOUT, "it ran for 5 s"), ("7", State.OOM, "h_vmem=1"),
        ("8", State.FAILED, "by qdel or for lack of memory"), ("9.1", State.COMPLETED, ""), ("9.2", State.FAILED, ""),
        ("10", State.COMPLETED, ""), ("13", State.FAILED, "its working directory does not exist on node3"),
        ("27", State.LOST, "it was to run again"), ("31", State.NODE_FAIL, ""), ("32", State.CANCELLED, "qdel -f"),
        ("30", State.NODE_FAIL, "node3, or Grid Engine's daemon there, went down (Grid Engine: failed 19"),
    ],
)  # fmt: skip
def test_qacct(job: str, state: State, says: str) -> None:
    status = ENGINE.accounting_query([]).read(recorded("qacct"))[job]
    assert status.state is state and says in status.reason
    assert " (Grid Engine: failed " in status.reason or " (Grid Engine: exit status " in status.reason


def test_the_record_of_a_parallel_job_is_its_own_and_not_that_of_a_task() -> None:
    """The task on ge3 was ended by a signal; the job went well."""
    status = ENGINE.accounting_query([]).read(recorded("qacct_parallel"))["1"]
    assert status.state is State.COMPLETED and status.hosts == ("ge4", "ge1", "ge2", "ge3")


def test_of_several_records_of_a_job_the_last_is_used() -> None:
    assert recorded("qacct").stdout.count("jobnumber    11 ") > 1
    assert "ended by SIGKILL" in ENGINE.accounting_query([]).read(recorded("qacct"))["11"].reason


@pytest.mark.parametrize("name", ["qacct_unknown", "qacct_no_file"])
def test_a_job_that_accounting_does_not_know_is_absent_and_not_completed(name: str) -> None:
    assert ENGINE.accounting_query([]).read(recorded(name)) == {}


def test_accounting_that_fails_says_nothing_about_jobs() -> None:
    said = Finished(("qacct",), 1, "no jobs running since startup\n", "/sge/common/accounting: Permission denied\n")
    with pytest.raises(SiteError, match="Permission denied"):
        ENGINE.accounting_query([]).read(said)


@pytest.mark.parametrize(
    ("values", "state", "says"),
    [
        # A job that caught the notice of its time limit, and ended by itself 25 s after.
        (dict(failed="37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", exit_status="0", ru_wallclock="29s",
              category="-l h_rt=4"), State.TIMEOUT, "29 s"),
        # Its time came first, whatever memory it had asked for.
        (dict(failed="37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", exit_status="137", ru_wallclock="603s",
              category="-l h_rt=600,h_vmem=4G -pe mpi 8"), State.TIMEOUT, "603 s"),
        (dict(failed="0", exit_status="0", ru_minflt="604"), State.COMPLETED, "exit status 0"),
        (dict(failed="15  : in epilog", exit_status="3", ru_minflt="604"), State.FAILED, "exit code 3"),
        (dict(failed="21  : in recognizing job", exit_status="0"), State.NODE_FAIL, "no longer knew it"),
        (dict(failed="8   : in prolog", exit_status="0", hostname="n7"), State.FAILED, "prolog failed on n7 ("),
        (dict(failed="77  : of a later version", exit_status="0"), State.FAILED, "Grid Engine says: failed 77, of a"),
        (dict(failed="", exit_status=""), State.UNKNOWN, ""),
        # Univa's and Altair's records.
        (dict(failed="100 : assumedly after job", deleted_by="root", exit_status="137"), State.CANCELLED, "by root"),
        (dict(failed="0", deleted_by="NONE", exit_status="0", ru_wallclock="0.020", ru_minflt="1407"),
         State.COMPLETED, ""),
    ],
)  # fmt: skip
def test_the_end_of_a_job_by_its_record(values: dict[str, str], state: State, says: str) -> None:
    status = ENGINE.accounting_query([]).read(qacct(**values))["5"]
    assert status.state is state and says in status.reason


def test_a_job_is_ended_by_qdel_and_a_task_too() -> None:
    assert ENGINE.cancel_command("9.2") == ["qdel", "9.2"]
    with pytest.raises(SiteError, match="does not exist"):
        recorded("qdel_unknown").check("cancelling job 99999")


@pytest.mark.parametrize("variable", ["PE_HOSTFILE", "SGE_JOB_HOSTLIST"])
def test_the_hosts_of_a_job_come_in_its_order(variable: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(recorded("pe_hostfile").stdout)
    found = ENGINE.hosts({"JOB_ID": "10", variable: str(tmp_path / "hosts")}, "node3")
    assert found == ["node3", "node1", "node2"]


def test_a_job_without_a_parallel_environment_has_the_host_it_is_on() -> None:
    assert ENGINE.hosts({"JOB_ID": "10"}, "node3") == ["node3"]


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "not inside a Grid Engine job"),
        ({"JOB_ID": "10", "PE_HOSTFILE": "/no/such/file"}, "/no/such/file: .* cannot be read: No such file"),
        ({"JOB_ID": "10", "PE_HOSTFILE": "/dev/null"}, "/dev/null: .* is empty"),
    ],
)
def test_missing_hosts_are_an_error(environment: dict[str, str], says: str) -> None:
    with pytest.raises(SiteError, match=says):
        ENGINE.hosts(environment, "login")


@pytest.mark.parametrize(("h_rt", "seconds"), [("86400", 86400.0), ("24:0:0", 86400.0), ("INFINITY", None)])
def test_a_limit_of_a_queue_in_plain_digits_is_seconds(h_rt: str, seconds: float | None) -> None:
    (queue,) = facts.queues([{"qname": "all.q", "h_rt": h_rt}], {})
    assert queue.time_s == seconds


def test_the_user_is_the_one_of_the_process_whatever_logname_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert "somebody-else" not in GridEngine().find_query("digits").command
