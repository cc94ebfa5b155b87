"""PBS's commands and parsers, from what real OpenPBS servers answered (recorded/openpbs)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder.events import Submitted
from torusrun.orchestrator.run.state.outcome import RESUME, resolve
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS

RECORDED = Path(__file__).parent / "recorded" / "openpbs"


def transcripts(number: str) -> list[Finished]:
    """Every command of one transcript, with what it said."""
    (path,) = RECORDED.glob(number if number.endswith(".txt") else f"{number}*.txt")
    found = re.findall(
        r"^\$ (.*?)\n--- stdout\n(.*?)--- stderr\n(.*?)--- exit (\d+)",
        path.read_text(errors="replace"),
        re.DOTALL | re.MULTILINE,
    )
    return [Finished(tuple(command.split()), int(code), out, err) for command, out, err, code in found]


def said(number: str, command: str, which: int = 0) -> Finished:
    matching = [said for said in transcripts(number) if " ".join(said.argv).startswith(command)]
    assert len(matching) > which, f"the transcript {number} has no {command!r}"
    return matching[which]


def kept(name: str) -> Finished:
    """What the release said to one command (recorded/openpbs/wide)."""
    (found,) = transcripts(f"wide/{name}.txt")
    return found


def told(name: str) -> dict[str, Status]:
    return PBS().status_query([]).read(kept(name))


def only(found: dict[str, Status]) -> Status:
    assert len(found) == 1, f"one job was recorded, these were read: {sorted(found)}"
    return next(iter(found.values()))


@pytest.mark.parametrize(
    ("name", "state", "says"),
    [
        ("finished_ok", State.COMPLETED, ""),
        ("failed_exit7", State.FAILED, "exit code 7"),
        ("qdel_running", State.CANCELLED, "deleted by its user, alice@pbs1"),
        ("qdel_in_its_first_second", State.FAILED, "its shell was ended by SIGKILL (exit status 265)"),
        ("walltime_exceeded", State.TIMEOUT, "reached its time limit (exit status -29)"),
        ("dropped_by_dependency", State.CANCELLED, "dropped by its dependency (afterok:5.pbs1@pbs1"),
        ("deleted_while_awaited", State.CANCELLED, "deleted before it started: it never ran"),
        ("deleted_while_waiting", State.CANCELLED, "deleted before it started: it never ran"),
        ("held_dependency", State.PENDING, "it waits for other jobs (afterok:6.pbs1@pbs1"),
        ("held_user", State.PENDING, "held by its user; qrls releases it"),
        ("can_never_run", State.PENDING, "ncpus (R: 500 A: 80 T: 80); the job cannot start like this"),
        ("waiting", State.PENDING, "waits for its time"),
        ("running_2nodes", State.RUNNING, ""),
        ("rerun_after_loss", State.PENDING, "Insufficient amount of resource: host"),  # its old end is shown
    ],
)
def test_every_recorded_state_is_read(name: str, state: State, says: str) -> None:
    status = only(told(name))
    assert status.state is state and says in status.reason, status


def test_only_a_job_that_waits_for_others_is_held_for_them() -> None:
    assert only(told("held_dependency")).held
    assert not only(told("held_user")).held and not only(told("can_never_run")).held


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("first_host_lost", "it lost its first node (hnode002) (exit status -20)"),
        ("sister_lost", "it lost its other node (hnode005) (exit status -14)"),
        ("mom_restarted", "the job ended as PBS's daemon on its first node (hnode003) was started again"),
    ],
)
def test_a_lost_node_is_named_with_what_to_do(name: str, says: str) -> None:
    status = only(told(name))
    assert status.state is State.NODE_FAIL and says in status.reason, status
    shown = resolve([Submitted(1, "1.s", "pbs")], 1, None, status, 0.0)
    assert shown.reason == f"{status.reason}; {RESUME}", "the advice is given once"


def test_the_hosts_are_reported_in_their_order() -> None:
    assert only(told("running_2nodes")).hosts == ("hnode001", "hnode002")


def test_the_tasks_of_an_array_are_reported_one_by_one() -> None:
    running, waiting, ended = (told(f"array_tasks_{what}") for what in ("running", "waiting", "ended"))
    assert list(running) == [PBS().task_id("25[].pbs1", index) for index in (0, 1)]
    assert {status.state for status in running.values()} == {State.RUNNING}
    assert [status.state for status in waiting.values()] == [State.RUNNING, State.PENDING]
    assert [(ended[f"25[{n}].pbs1"].state) for n in (0, 1, 3)] == [State.COMPLETED, State.FAILED, State.CANCELLED]


@pytest.mark.parametrize(("name", "task"), [("array_waiting_task_deleted", 2), ("array_tasks_deleted", 3)])
def test_a_task_whose_record_is_gone_is_lost_whatever_its_arrays_exit_status(name: str, task: int) -> None:
    """PBS says "Subjob finished" of tasks that never ran, with the exit status of the array."""
    (status,) = (status for job_id, status in told(name).items() if f"[{task}]" in job_id)
    assert status == Status(State.LOST, "the task is over, and PBS no longer reports how it ended")


# What others can put into the answer: a job's variables are whatever its user wrote.


def test_a_forged_record_in_a_jobs_variables_is_not_read() -> None:
    """The forger's job holds "Job Id: 6.pbs1", "job_state = F" and "Exit_status = 0", each after a line break."""
    assert kept("forged_plain").stdout.count("\nJob Id: 6.pbs1\n    job_state = F\n") == 1, (
        "plain text shows it as real"
    )
    assert "6.pbs1" in kept("forged_plain").argv and "-w" not in kept("forged_plain").argv
    found = told("forged_wide")
    assert {job_id: status.state for job_id, status in found.items()} == dict.fromkeys(
        ("6.pbs1", "18.pbs1"), State.RUNNING
    )
    for command in (PBS().status_query(["6.pbs1"]).command, PBS().accounting_query(["6.pbs1"]).command):
        assert {"-f", "-w", "-E", "6.pbs1"} <= set(command), (
            "every job is asked for by name, in lines that cannot be forged"
        )


def test_of_repeated_attributes_and_jobs_the_first_is_used() -> None:
    forged = (
        "Job Id: 1.s\n    job_state = R\n    job_state = F\n    Exit_status = 0\n\nJob Id: 1.s\n    job_state = F\n"
    )
    assert PBS().status_query([]).read(Finished(("qstat",), 0, forged, "")) == {"1.s": Status(State.RUNNING)}


@pytest.mark.parametrize(
    "line",
    ["job_state = F", "\tjob_state = F", "     job_state = F", "    x\x0cjob_state = F", "x\u2028    job_state = F"],
)
def test_only_lines_of_four_blanks_and_a_name_are_attributes(line: str) -> None:
    text = f"Job Id: 1.s\n    Variable_List = A=x\n{line}\n    job_state = R\n"
    assert PBS().status_query([]).read(Finished(("qstat",), 0, text, "")) == {"1.s": Status(State.RUNNING)}


@pytest.mark.parametrize("letter", ["Q", "H", "F", "M"])
def test_a_reason_is_one_line_whatever_people_wrote(letter: str) -> None:
    text = f"Job Id: 1.s\n    job_state = {letter}\n    Exit_status = -99\n    Hold_Types = s\n"
    for written in ("a\\nb", "a\u2028b", "a\x85b", "a\rb"):
        said = Finished(("qstat",), 0, f"{text}    comment = {written}\n    depend = {written}\n", "")
        reason = PBS().status_query([]).read(said)["1.s"].reason
        assert "a b" in reason and reason.isprintable(), reason


# Ends in plain text, with lines wrapped in the middle of a word.


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("2.pbs1", State.FAILED, "exit code 7"),
        ("7.pbs1", State.TIMEOUT, "reached its time limit"),
        ("13.pbs1", State.CANCELLED, "deleted by its user, alice@pbs1"),
        ("17.pbs1", State.CANCELLED, "deleted by its user"),  # qdel -W force
        ("19.pbs1", State.FAILED, "its shell was ended by SIGKILL (exit status 265)"),
        ("20.pbs1", State.FAILED, "its shell was ended by SIGTERM (exit status 271)"),  # 271, and nobody deleted it
        ("22.pbs1", State.FAILED, "its shell was ended by SIGSEGV (exit status 267)"),
        ("25.pbs1", State.FAILED, "a program in it was ended by SIGINT (exit status 130)"),
    ],
)
def test_the_end_of_a_job_by_its_record(job: str, state: State, says: str) -> None:
    status = PBS().accounting_query([]).read(said("04", f"qstat -xf {job}"))[job]
    assert status.state is state and says in status.reason, status


def test_lines_that_are_wrapped_are_joined() -> None:
    text = said("01", "qstat -x -f 0.pbs1")
    assert "\n\t" in text.stdout, "the recording has wrapped lines"
    assert PBS().accounting_query([]).read(text)["0.pbs1"].state is State.COMPLETED


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        ("125.pbs1", State.PENDING, "Insufficient amount of resource: host"),  # -r y: back in the queue, old end shown
        ("126.pbs1", State.NODE_FAIL, "it lost its first node ("),
        ("127.pbs1", State.NODE_FAIL, "it lost its first node ("),
        ("128.pbs1", State.RUNNING, ""),  # a sister is lost, and the server says R for minutes
    ],
)
def test_a_job_whose_node_died(job: str, state: State, says: str) -> None:
    shown = said("08", f"qstat -xf {job}")
    whole = replace(shown, stdout=f"Job Id: {job}\n{shown.stdout}")  # the recording left the first line out
    status = PBS().accounting_query([]).read(whole)[job]
    assert status.state is state and says in status.reason, status


@pytest.mark.parametrize(
    ("code", "state", "says"),
    [
        (-14, State.NODE_FAIL, "it lost a node other than its first (exit status -14)"),
        (-4, State.NODE_FAIL, "PBS's daemon on its first node was started again"),
        (-27, State.OOM, "more memory"),
        (-3, State.FAILED, "could not be started"),
        (-99, State.FAILED, "a reason of its own (exit status -99)"),
        (254, State.FAILED, "exit code 254"),
        (127, State.FAILED, "exit code 127"),
        (137, State.FAILED, "a program in it was ended by SIGKILL"),
        (0, State.COMPLETED, ""),
    ],
)
def test_an_exit_status_has_a_meaning(code: int, state: State, says: str) -> None:
    text = f"Job Id: 1.s\n    job_state = F\n    Exit_status = {code}\n"
    status = PBS().accounting_query([]).read(Finished(("qstat",), 0, text, ""))["1.s"]
    assert status.state is state and says in status.reason, status


def test_an_administrator_differs_from_the_user() -> None:
    text = "Job Id: 1.s\n    Job_Owner = a@h\n    job_state = F\n    Exit_status = 271\n"
    text += "    comment = Job run at Fri and terminated by root@h\n"
    status = PBS().accounting_query([]).read(Finished(("qstat",), 0, text, ""))["1.s"]
    assert (status.state, status.reason) == (State.CANCELLED, "deleted by root@h, who is not its user")


def test_a_deleted_job_that_never_ran_is_no_failure() -> None:
    status = PBS().accounting_query([]).read(said("02", "qstat -xf 37.pbs1"))["37.pbs1"]
    assert (status.state, "never ran" in status.reason) == (State.CANCELLED, True), status


@pytest.mark.parametrize("letter", ["M", "Z", ""])
def test_an_unknown_state_is_shown_as_unknown(letter: str) -> None:
    text = f"Job Id: 1.s\n    job_state = {letter}\n"
    assert PBS().accounting_query([]).read(Finished(("qstat",), 0, text, ""))["1.s"].state is State.UNKNOWN


# What PBS answers when it does not know, and when it is not there.


def test_an_unknown_job_does_not_hide_the_others() -> None:
    assert kept("mixed_unknown").exit_code == 0 and list(told("mixed_unknown")) == ["4.pbs1"]
    assert told("one_finished_without_x") == {} and kept("one_finished_without_x").exit_code == 35
    assert PBS().status_query([]).read(Finished(("qstat",), 153, "", "qstat: Unknown Job Id 1.s")) == {}


@pytest.mark.parametrize("command", ["qstat", "qsub", "qdel"])
def test_a_server_that_is_down_does_not_mean_no_jobs(command: str) -> None:
    for answer in (s for s in transcripts("10") if s.argv[0] == command and "cannot connect" in s.stderr):
        with pytest.raises(SiteError, match="cannot connect to server"):
            PBS().status_query([]).read(answer)
        with pytest.raises(SiteError, match="cannot connect to server"):
            PBS().accounting_query([]).read(answer)


def test_a_server_without_history_still_answers() -> None:
    assert "not configured" in kept("nohist_x").stderr and told("nohist_x") == {}


def test_a_server_without_history_reports_the_jobs_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """To anything with -x such a server answers as if it had no jobs, whether they run or not."""

    def run(argv: list[str], *, timeout_s: float) -> Finished:
        return kept("nohist_x" if "-x" in argv else "running_2nodes")

    monkeypatch.setattr(process, "run", run)
    running = next(iter(told("running_2nodes")))
    found = client.Client(PBS(), 10).poll([running, "2.s"])
    assert (found[running].state, found["2.s"].state) == (State.RUNNING, State.LOST)


REFUSED = [(s.argv, s) for s in transcripts("02") if s.argv[0] == "qsub" and s.exit_code]


@pytest.mark.parametrize("answer", [s for _, s in REFUSED], ids=[" ".join(a)[:50] for a, _ in REFUSED])
def test_a_refusal_has_the_schedulers_words(answer: Finished) -> None:
    with pytest.raises(SiteError, match=f"exit code {answer.exit_code}: ") as told:
        answer.check("submitting the job")
    words = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[0]
    assert words in str(told.value)


def test_every_exit_code_of_the_table_was_recorded() -> None:
    numbers = ("01", "02", "04", "05b", "06", "08", "10", "14")
    codes = {said.exit_code for number in numbers for said in transcripts(number)}
    assert {153, 35, 170, 173, 187, 166, 188, 160, 162, 255, 2, 1, 168} <= codes, sorted(codes)
