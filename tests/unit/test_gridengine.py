"""Grid Engine's commands, directives and parsers, from what a real 8.1.9 answered to them (recorded/gridengine)."""

import re
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.schedulers.gridengine import facts
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.interface import Request

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


def test_the_id_of_a_submitted_job_and_those_of_its_tasks_from_1() -> None:
    assert ENGINE.job_id(recorded("qsub").stdout) == "1"
    assert ENGINE.job_id(recorded("qsub_array").stdout) == "9" and ENGINE.task_id("9", 3) == "9.4"
    assert ENGINE.job_id("a site's greeting\n17\n2 jobs of yours wait\n") == "17"
    assert ENGINE.job_id('Your job 28 ("digits-1") has been submitted\n') == "28"
    assert ENGINE.job_id('Your job-array 20.1-3:1 ("digits-1") has been submitted\n') == "20"
    for printed in ("", "Your job was refused\n", "17\n28\n"):
        with pytest.raises(SiteError, match="see qstat"):
            ENGINE.job_id(printed)


def test_the_recordings_are_of_the_commands_in_use_one_for_a_thousand_jobs_and_for_the_tasks_of_an_array() -> None:
    assert list(recorded("qstat").argv) == ENGINE.status_query(IDS).command
    assert list(recorded("qacct").argv) == ENGINE.accounting_query(IDS).command
    assert list(recorded("qacct_one").argv) == ENGINE.accounting_query(["2"]).command
    assert len(ENGINE.status_query(IDS).command) < 12 and len(ENGINE.accounting_query(IDS).command) < 12
    assert ENGINE.accounting_query(["12.1", "12.2"]).command == ["qacct", "-o", "labuser", "-j", "12"]


@pytest.mark.parametrize(
    ("name", "job", "state", "says"),
    [
        ("qstat", "18", State.RUNNING, ""), ("qstat", "20.1", State.RUNNING, ""), ("qstat", "20.3", State.PENDING, ""),
        ("qstat", "25", State.PENDING, ""), ("qstat", "19", State.RUNNING, ""),
        ("qstat", "20", State.RUNNING, ""),  # the array as a whole
        ("qstat", "21", State.PENDING, "held: qrls 21 releases it"),
        ("qstat", "22", State.PENDING, "it waits for job 18, 21"),
        ("qstat", "23", State.RUNNING, ""),  # waits for a job that is not
        ("qstat", "24", State.PENDING, "qstat -j 24 says why); the job cannot start like this"),
        ("qstat", "26", State.RUNNING, "suspended by qmod"), ("qstat", "27", State.PENDING, "rescheduled"),
        ("qstat", "29", State.RUNNING, "being deleted"),
        # A host of these jobs went down; Grid Engine calls them running.
        ("qstat_silent", "18", State.RUNNING, ""), ("qstat_silent", "19", State.RUNNING, "node3 does not answer Grid"),
        ("qstat_silent", "30", State.RUNNING, "node3 does not answer"),
        ("qstat_silent", "31", State.RUNNING, "being deleted; node3 does not"),
        ("qstat_silent", "33", State.RUNNING, "node3 does not answer"),
    ],
)  # fmt: skip
def test_qstat(name: str, job: str, state: State, says: str) -> None:
    status = ENGINE.status_query([]).read(recorded(name))[job]
    assert status.state is state and says in status.reason and bool(says) == bool(status.reason)


def test_qstat_reports_the_hosts() -> None:
    found = ENGINE.status_query([]).read(recorded("qstat"))
    assert found["19"].hosts == ("node2", "node3", "node4") and found["20.3"].hosts == ()


def test_every_state_that_grid_engine_documents_is_known_and_another_is_shown_by_its_letters() -> None:
    """A rescheduled job on its way to its hosts can hang there, and what its first start did says nothing of it."""
    documented = {State.PENDING: WAITING.split(), State.RUNNING: RUNNING.split(), State.UNKNOWN: ["P", "", "zz"]}
    for state, all_letters in documented.items():
        for letters in all_letters:
            status = ENGINE.status_query([]).read(qstat(letters))["5"]
            assert status.state is state and (state is not State.UNKNOWN or repr(letters) in status.reason), letters
    rescheduled = ENGINE.status_query([]).read(qstat("Rt"))["5"]
    assert rescheduled.reason == "rescheduled; being sent to its hosts (Grid Engine: Rt)"


def test_no_jobs_is_an_answer_but_a_failed_qstat_is_not_nor_xml_that_is_cut_off() -> None:
    assert ENGINE.status_query([]).read(recorded("qstat_nothing")) == {}
    with pytest.raises(SiteError, match="unable to send message to qmaster"):
        ENGINE.status_query([]).read(recorded("qstat_down"))
    for cut in (0, 300):
        with pytest.raises(SiteError, match="XML cannot be read"):
            ENGINE.status_query([]).read(Finished(("qstat",), 0, recorded("qstat").stdout[:cut], ""))


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("1", State.COMPLETED, "exit status 0"), ("2", State.FAILED, "exit status 7"),
        ("3", State.FAILED, "ended by SIGSEGV"), ("4", State.FAILED, "a program in it ended by SIGKILL"),
        ("5", State.FAILED, "application error"), ("6", State.TIMEOUT, "it ran for 5 s"), ("7", State.OOM, "h_vmem=1"),
        ("8", State.FAILED, "by qdel or for lack of memory"), ("9.1", State.COMPLETED, ""), ("9.2", State.FAILED, ""),
        ("11", State.FAILED, "ended by SIGKILL"),  # the last of several records
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


def test_a_job_that_accounting_does_not_know_is_absent_and_accounting_that_fails_says_nothing() -> None:
    for name in ("qacct_unknown", "qacct_no_file"):
        assert ENGINE.accounting_query([]).read(recorded(name)) == {}
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


def test_the_hosts_of_a_job_come_in_its_order_and_without_a_parallel_environment_it_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(recorded("pe_hostfile").stdout)
    for variable in ("PE_HOSTFILE", "SGE_JOB_HOSTLIST"):
        found = ENGINE.hosts({"JOB_ID": "10", variable: str(tmp_path / "hosts")}, "node3")
        assert found == ["node3", "node1", "node2"]
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


def request(**changes: object) -> Request:
    values = dict(
        name="digits-1", nodes=4, ranks_per_node=2, cpus_per_rank=3, gpus_per_node=2, memory_bytes=3 * 2**30,
        time_s=3690.5, queue="main.q", account="lab", ask=("-pe mpi 8",), extra=("-m n",),
        stdout=Path("/r/job.out"), stderr=Path("/r/job.err"),
    )  # fmt: skip
    return Request(**{**values, **changes})  # type: ignore[arg-type]


def test_the_directives() -> None:
    assert ENGINE.directives(request()) == [
        f"#$ {option}" for option in (
            "-N digits-1", "-pe mpi 8", "-l h_rt=01:01:31", "-S /bin/bash", "-j y", "-o /dev/null", "-notify", "-r n",
            "-l mem_free=1536M", "-q main.q", "-P lab", "-m n",
        )
    ]  # fmt: skip


def test_the_directives_of_an_array_that_waits_of_hosts_that_are_left_out_and_of_blanks() -> None:
    lines = ENGINE.directives(request(after=("7",), after_any=("9",), array=20, parallel=4, exclude=("n3", "n7")))
    assert {"#$ -hold_jid 7,9", "#$ -t 1-20", "#$ -tc 4", "#$ -l hostname=!(n3|n7)"} <= set(lines)
    assert '#$ -P "group 1"' in ENGINE.directives(request(account="group 1"))


@pytest.mark.parametrize("more", [{"nodes": 2}, {"ranks_per_node": 2}, {"cpus_per_rank": 2}, {"gpus_per_node": 1}])
def test_a_site_without_ask_gets_the_way_to_write_it_if_a_job_needs_more_than_a_slot(more: dict[str, int]) -> None:
    one = dict(nodes=1, ranks_per_node=1, cpus_per_rank=1, gpus_per_node=0, ask=())
    assert not any("-pe" in line for line in ENGINE.directives(request(**one)))
    with pytest.raises(UserError, match=r'ask: \["-pe NAME \{ranks\}"\].*ask: \["-l rt_F=\{nodes\}"\]'):
        ENGINE.directives(request(**{**one, **more}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": 'a b" -l evil=1 "c'}, "holds '\"': Grid Engine's directives cannot contain a quote"),
        ({"account": "it's"}, "'account': \"it's\" holds"),
        ({"account": "a\\"}, "cannot contain a quote or a backslash"),
        ({"queue": "a#b"}, "Grid Engine's directives end there"),
        ({"queue": "-x"}, "begins with '-'"),
        ({"name": "a\n-q x"}, "a directive is one line"),
        ({"account": "a" * 2100}, "may have 2000 bytes"),
        ({"extra": ("-ac color=#fff",)}, "submit_args"),
    ],
)
def test_a_value_that_a_directive_cannot_carry_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        ENGINE.directives(request(**changes))


def test_a_job_does_not_store_all_of_a_logins_environment_and_a_sites_own_words_come_before_the_script() -> None:
    command = ENGINE.submit_command(Path("/r/job.sh"), request(submit_args=("-g", "gaa50000")))
    assert command == ["qsub", "-terse", "-v", "PATH,LD_LIBRARY_PATH", "-g", "gaa50000", "/r/job.sh"], (
        "with -V qstat -j would show everybody the keys and tokens of a login"
    )
