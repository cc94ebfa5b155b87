"""PBS's commands, directives and parsers, from what real OpenPBS servers answered (recorded/openpbs)."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder.events import Submitted
from torusrun.orchestrator.run.state.outcome import RESUME, resolve
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.pbs.scheduler import KEPT, OWN_COMMANDS, PBS

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


def test_only_a_job_that_waits_for_others_is_held_for_them_and_the_hosts_are_reported_in_their_order() -> None:
    assert only(told("held_dependency")).held
    assert not only(told("held_user")).held and not only(told("can_never_run")).held
    assert only(told("running_2nodes")).hosts == ("hnode001", "hnode002")


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


def test_the_tasks_of_an_array_are_reported_one_by_one() -> None:
    running, waiting, ended = (told(f"array_tasks_{what}") for what in ("running", "waiting", "ended"))
    assert list(running) == [PBS().task_id("25[].pbs1", index) for index in (0, 1)]
    assert {status.state for status in running.values()} == {State.RUNNING}
    assert [status.state for status in waiting.values()] == [State.RUNNING, State.PENDING]
    assert [(ended[f"25[{n}].pbs1"].state) for n in (0, 1, 3)] == [State.COMPLETED, State.FAILED, State.CANCELLED]


def test_a_task_whose_record_is_gone_is_lost_whatever_its_arrays_exit_status() -> None:
    """PBS says "Subjob finished" of tasks that never ran, with the exit status of the array."""
    for name, task in (("array_waiting_task_deleted", 2), ("array_tasks_deleted", 3)):
        (status,) = (status for job_id, status in told(name).items() if f"[{task}]" in job_id)
        assert status == Status(State.LOST, "the task is over, and PBS no longer reports how it ended")


# What others can put into the answer: a job's variables are whatever its user wrote.


def test_a_forged_record_in_a_jobs_variables_is_not_read() -> None:
    """The forger's job holds "Job Id: 6.pbs1", "job_state = F" and "Exit_status = 0", each after a line break."""
    plain = kept("forged_plain")
    assert plain.stdout.count("\nJob Id: 6.pbs1\n    job_state = F\n") == 1, "plain text shows it as real"
    assert "6.pbs1" in plain.argv and "-w" not in plain.argv
    states = {job_id: status.state for job_id, status in told("forged_wide").items()}
    assert states == {"6.pbs1": State.RUNNING, "18.pbs1": State.RUNNING}
    for command in (PBS().status_query(["6.pbs1"]).command, PBS().accounting_query(["6.pbs1"]).command):
        assert {"-f", "-w", "-E", "6.pbs1"} <= set(command), "each job by name, in lines that cannot be forged"


R, F = "    job_state = R\n", "    job_state = F\n"


@pytest.mark.parametrize(
    "text",
    [
        f"Job Id: 1.s\n{R}{F}    Exit_status = 0\n\nJob Id: 1.s\n{F}",  # the first of repeated attributes and jobs
        *(f"Job Id: 1.s\n    Variable_List = A=x\n{line}\n{R}"  # attributes have four blanks and a name
          for line in ("job_state = F", "\tjob_state = F", "     job_state = F", "    x\x0cjob_state = F",
                       "x\u2028    job_state = F")),
    ],
)  # fmt: skip
def test_no_forged_attribute_is_read(text: str) -> None:
    assert PBS().status_query([]).read(Finished(("qstat",), 0, text, "")) == {"1.s": Status(State.RUNNING)}


@pytest.mark.parametrize("letter", ["Q", "H", "F", "M"])
def test_a_reason_is_one_line_whatever_people_wrote(letter: str) -> None:
    text = f"Job Id: 1.s\n    job_state = {letter}\n    Exit_status = -99\n    Hold_Types = s\n"
    for written in ("a\\nb", "a\u2028b", "a\x85b", "a\rb"):
        said = Finished(("qstat",), 0, f"{text}    comment = {written}\n    depend = {written}\n", "")
        reason = PBS().status_query([]).read(said)["1.s"].reason
        assert "a b" in reason and reason.isprintable(), reason


def test_lines_that_are_wrapped_are_joined() -> None:
    text = said("01", "qstat -x -f 0.pbs1")
    assert "\n\t" in text.stdout, "the recording has wrapped lines"
    assert PBS().accounting_query([]).read(text)["0.pbs1"].state is State.COMPLETED


@pytest.mark.parametrize(
    ("code", "state", "says"),
    [
        (-14, State.NODE_FAIL, "it lost a node other than its first (exit status -14)"),
        (-4, State.NODE_FAIL, "PBS's daemon on its first node was started again"),
        (-27, State.OOM, "more memory"),
        (-3, State.FAILED, "could not be started"),
        (-99, State.FAILED, "a reason of its own (exit status -99)"),
        (254, State.FAILED, "exit code 254"),
        (271, State.FAILED, "its shell was ended by SIGTERM (exit status 271)"),  # and nobody deleted it
        (130, State.FAILED, "a program in it was ended by SIGINT (exit status 130)"),
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


def test_an_unknown_state_is_shown_as_unknown() -> None:
    for letter in ("M", "Z", ""):
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


def test_a_server_without_history_reports_the_jobs_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """To anything with -x such a server answers as if it had no jobs, whether they run or not."""
    assert "not configured" in kept("nohist_x").stderr and told("nohist_x") == {}

    def run(argv: list[str], *, timeout_s: float) -> Finished:
        return kept("nohist_x" if "-x" in argv else "running_2nodes")

    monkeypatch.setattr(process, "run", run)
    running = next(iter(told("running_2nodes")))
    found = client.Client(PBS(), 10).poll([running, "2.s"])
    assert (found[running].state, found["2.s"].state) == (State.RUNNING, State.LOST)


def test_a_refusal_has_the_schedulers_words() -> None:
    for answer in (s for s in transcripts("02") if s.argv[0] == "qsub" and s.exit_code):
        with pytest.raises(SiteError, match=f"exit code {answer.exit_code}: ") as told:
            answer.check("submitting the job")
        assert (answer.stderr.strip() or answer.stdout.strip()).splitlines()[0] in str(told.value), answer.argv


# The array of a run that keeps going, one task at a time (recorded/openpbs/chain).


def chained(name: str) -> Finished:
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
    said = chained(name)
    status = only(PBS().status_query([]).read(said))
    assert said.argv[-1].endswith("[].pbs1") and status.state is state and says in status.reason, status


@pytest.mark.parametrize("name", ["ended", "ended_no_history"])
def test_an_array_that_is_over_leaves_the_answer(name: str) -> None:
    assert PBS().status_query([]).read(chained(name)) == {}


def test_the_tasks_that_are_not_needed_are_deleted_as_pbs_takes_it() -> None:
    assert chained("range_of_one_refused").exit_code == 156
    for name, first, last in (("range_deleted", 4, 5), ("task_deleted", 1, 1)):
        said = chained(name)
        array = said.argv[1].partition("[")[0] + "[].pbs1"
        assert (PBS().cancel_tasks_command(array, first, last), said.exit_code) == (list(said.argv), 0)


def test_a_task_whose_first_host_is_gone_is_deleted_by_force_because_the_server_refuses_otherwise() -> None:
    refused, forced = chained("lost_refused"), chained("lost_forced")
    assert (PBS().cancel_command(refused.argv[1]), refused.exit_code) == (list(refused.argv), 222)
    assert (PBS().after_loss_command(refused.argv[1], 1), forced.exit_code) == (list(forced.argv), 0)

    (task,) = PBS().status_query([]).read(chained("lost_forced_task")).values()
    assert task == Status(State.CANCELLED, "deleted by its user, alice@pbs1", ("hnode001", "hnode002"))


def test_an_arrays_id_is_read_and_is_that_in_its_tasks() -> None:
    job = PBS().job_id(chained("qsub").stdout)
    inside = dict(line.split("=", 1) for line in chained("environment").stdout.splitlines())
    assert PBS().own_job(inside) == job == "2[].pbs1"
    assert PBS().task_id(job, PBS().own_task(inside) or 0) == inside["PBS_JOBID"]


# PBS's commands and directives: what a request becomes, and what qsub prints.


REQUEST = Request("digits-1", 4, 2, 3, 2, 3 * 2**30, 90.0, "rt_HF", "gag1", Path("/r/out"), Path("/r/err"))


def test_the_id_of_a_submitted_job() -> None:
    long, greeted = "12.10.0.0.1\nallocation ok\n", "2.5\nbalance 17.3\n12.pbs1.org\n"
    assert [PBS().job_id(printed) for printed in ("1.pbs1\n", "27[].pbs1\n")] == ["1.pbs1", "27[].pbs1"]
    assert [PBS().job_id(printed) for printed in (greeted, long)] == ["12.pbs1.org", "12.10.0.0.1"]
    for printed in ("", "qsub: queued", "job 12"):
        with pytest.raises(SiteError, match="did not print a job id"):
            PBS().job_id(printed)


def test_the_directives() -> None:
    request = replace(REQUEST, after=("1.s", "2.s"), after_any=("3.s",), array=20, parallel=5, extra=("-m e",))
    assert PBS().directives(request) == [
        f"#PBS {option}" for option in (
            "-N digits-1", "-l select=4:ncpus=6:mpiprocs=2:ngpus=2:mem=3072mb", "-l place=scatter",
            "-l walltime=00:01:30", "-j oe", "-k oe", "-r y", "-q rt_HF", "-P gag1",
            "-W depend=afterok:1.s:2.s,afterany:3.s", "-J 0-19%5", "-m e",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "is_kept"), [("digits-1.1.o17", False), ("digits-1.1.o17.3", False), ("run.out", True)]
)
def test_the_file_that_pbs_keeps_is_removed_and_no_other(name: str, is_kept: bool, tmp_path: Path) -> None:
    """A job that keeps going runs the scripts of its attempts with its own output, which is a file of the run."""
    output = tmp_path / name
    with output.open("w") as out:
        done = subprocess.run(
            ["bash", "-c", KEPT], stdout=out, env={"PBS_JOBNAME": "digits-1.1"}, timeout=300, check=False
        )
    assert (done.returncode, output.exists()) == (0, is_kept)


def test_a_site_asks_in_its_own_words_and_quotes_keep_a_value_together() -> None:
    lines = PBS().directives(replace(REQUEST, ask=("-l select=4:mpiprocs=8",), account="a b", time_s=360000))
    assert "#PBS -l select=4:mpiprocs=8" in lines and not any("ncpus" in line or "scatter" in line for line in lines)
    assert '#PBS -P "a b"' in lines and "#PBS -l walltime=100:00:00" in lines
    lines = PBS().directives(replace(REQUEST, extra=("-l place=scatter:excl",), gpu_type="v100"))
    assert [line for line in lines if "place=" in line] == ["#PBS -l place=scatter:excl"], "PBS refuses a second one"
    assert "#PBS -l select=4:ncpus=6:mpiprocs=2:ngpus=2:gpu_type=v100:mem=3072mb" in lines
    for exclusive, sharing in ((True, ":excl"), (False, ":shared"), (None, "")):
        assert f"#PBS -l place=scatter{sharing}" in PBS().directives(replace(REQUEST, exclusive=exclusive))
    lines = PBS().directives(replace(REQUEST, queue='a" -l evil=1 "b', account="it's #1"))
    assert """#PBS -q 'a" -l evil=1 "b'""" in lines and '#PBS -P "it\'s #1"' in lines


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": "a\\"}, "'queue': 'a\\\\' holds a backslash"),
        ({"account": """a"b'c"""}, "both kinds of quotes"),
        ({"queue": "-x"}, "begins with '-'"),
        ({"name": "a\n#PBS -q x"}, "a directive is one line"),
        ({"account": "a" * 2100}, "may have 2000 bytes"),
        ({"extra": ("-m e \\",)}, "joins a directive that ends with a backslash with the next line"),
    ],
)
def test_a_value_that_a_directive_cannot_carry_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        PBS().directives(replace(REQUEST, **changes))


def test_a_job_is_not_run_again_but_the_tasks_of_an_array_have_to_be() -> None:
    assert "#PBS -r n" in PBS().directives(REQUEST), "a rerun would run under the same attempt"
    assert "#PBS -r y" in PBS().directives(replace(REQUEST, array=2)), "qsub refuses arrays that are not rerunable"


def test_the_hosts_inside_a_job(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("hnode002\nhnode002\nhnode001\nhnode001\n")
    assert PBS().hosts({"PBS_NODEFILE": str(nodes)}, "x") == ["hnode002", "hnode001"]
    nodes.write_text("")
    for environment in ({}, {"PBS_NODEFILE": str(nodes)}, {"PBS_NODEFILE": str(tmp_path / "none")}):
        with pytest.raises(SiteError):
            PBS().hosts(environment, "x")


def test_a_job_finds_pbs_own_commands_by_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pbs_tmrsh").touch(0o755)
    (tmp_path / "pbs.conf").write_text(f"PBS_EXEC={tmp_path}\n")
    environment = {"PATH": "/usr/bin:/bin", "PBS_CONF_FILE": str(tmp_path / "pbs.conf")}
    script = ["bash", "-ec", f"{OWN_COMMANDS}; command -v pbs_tmrsh; echo $PATH"]
    said = process.run(script, timeout_s=300, environment=environment).stdout.split()
    assert said == [str(tmp_path / "bin/pbs_tmrsh"), f"/usr/bin:/bin:{tmp_path}/bin"], "an MPI's mpiexec comes first"
    environment["PATH"] += f":{tmp_path}/bin"
    assert process.run(script, timeout_s=300, environment=environment).stdout.split() == said, "it is added once"


def test_a_thousand_jobs_cost_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"{n}.pbs1" for n in range(1000)]
    asked: list[list[str]] = []

    def run(argv: list[str], *, timeout_s: float) -> Finished:
        asked.append(argv)
        return Finished(tuple(argv), 0, "".join(f"Job Id: {job}\n    job_state = R\n\n" for job in argv[4:]), "")

    monkeypatch.setattr(process, "run", run)
    assert {status.state for status in client.Client(PBS(), 10).poll(ids).values()} == {State.RUNNING}
    assert asked == [["qstat", "-f", "-w", "-E", *ids]], "-E asks for all that are named over one connection"
