"""A scheduler is asked once per interval, by however many processes: its commands write down each time they run."""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.process import Finished, NoAnswer
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Started, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import poll
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers import answers
from torusrun.orchestrator.schedulers.client import Client, answers_file, note_action
from torusrun.orchestrator.schedulers.interface import Query, Request, Scheduler, Traits, Variables

HOUR_S = 3600.0
NOT_IN_TIME = r"sh did not answer within [\d.]+ s"  # in what is left of 5 s, rounded up


def rows(said: Finished) -> dict[str, Status]:
    found = [line.split() for line in said.check("asking").stdout.splitlines()]
    return {job: Status(State(state), f"{state} it is", ("n1",)) for job, state in found}


class Noting(Scheduler):
    """A queue and records in two files, `ID STATE` in each line; each command adds its name to a third."""

    name = "noting"
    variables = Variables("NOTING_JOB")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def directives(self, request: Request) -> list[str]:
        return []

    def submit_command(self, script: Path, request: Request) -> list[str]:
        return ["sh", "-c", f"echo submit >> {self.folder}/asked; echo 9 PENDING >> {self.folder}/queue; echo 9"]

    def job_id(self, stdout: str) -> str:
        return stdout.strip()

    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        return Query(["sh", "-c", f"echo queue >> {self.folder}/asked; cat {self.folder}/queue"], rows)

    def accounting_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        asked = f"echo records {' '.join(sorted(job_ids))} >> {self.folder}/asked"
        return Query(["sh", "-c", f"{asked}; cat {self.folder}/records"], rows)

    def find_query(self, token: str) -> Query[list[str]]:
        command = f"echo find >> {self.folder}/asked; cat {self.folder}/queue"
        return Query(["sh", "-c", command], lambda said: [*rows(said)])

    def cancel_command(self, job_id: str) -> list[str]:
        return ["sh", "-c", f"echo cancel >> {self.folder}/asked"]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        return [this_host]


class Naming(Noting):
    """One that tells only of the jobs that it is asked about."""

    traits = Traits()

    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        wanted = f"grep -E '^({'|'.join(job_ids)}) ' {self.folder}/queue || true"
        return Query(["sh", "-c", f"echo queue {' '.join(sorted(job_ids))} >> {self.folder}/asked; {wanted}"], rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "queue").write_text("1 RUNNING\n2 PENDING\n")
    (tmp_path / "records").write_text("")
    (tmp_path / "asked").write_text("")
    return tmp_path


def client(folder: Path) -> Client:
    return Client(Noting(folder), 10.0)


def asked(folder: Path) -> list[str]:
    """What was asked since the last look."""
    lines = (folder / "asked").read_text().splitlines()
    (folder / "asked").write_text("")
    return lines


def test_the_second_question_is_answered_from_the_first_answer(folder: Path) -> None:
    first = answers.states(client(folder), ["1"], HOUR_S)
    assert asked(folder) == ["queue"]
    assert answers.states(client(folder), ["1"], HOUR_S) == first, "a status must come back as it was written"
    other = answers.states(client(folder), ["2"], HOUR_S)
    assert other.jobs == {"2": Status(State.PENDING, "PENDING it is", ("n1",))} and asked(folder) == []


def test_a_job_that_left_the_queue_costs_one_question_for_all(folder: Path) -> None:
    answers.states(client(folder), ["1"], HOUR_S)
    asked(folder)
    (folder / "records").write_text("7 FAILED\n")
    for _ in range(2):
        assert answers.states(client(folder), ["1", "7"], HOUR_S).jobs["7"].state is State.FAILED
    assert asked(folder) == ["queue", "records 7"]


def test_an_old_answer_is_renewed_for_the_jobs_of_all(folder: Path) -> None:
    (folder / "records").write_text("7 COMPLETED\n")
    answers.states(client(folder), ["1", "7", "8"], HOUR_S)
    assert asked(folder) == ["queue", "records 7 8"]
    (folder / "queue").write_text("")
    renewed = answers.states(client(folder), ["2"], 1e-6)
    assert asked(folder) == ["queue", "records 1 2 8"], "7 has ended for good; 8 is LOST, and its record may come late"
    assert renewed.jobs["2"].state is State.LOST
    assert answers.states(client(folder), ["1", "7"], HOUR_S).jobs["7"].state is State.COMPLETED
    assert asked(folder) == []


@pytest.mark.parametrize("act", ["submit", "cancel"])
def test_an_answer_before_an_act_of_the_user_is_too_old(act: str, folder: Path) -> None:
    answers.states(client(folder), ["1"], HOUR_S)
    request = Request("x", 1, 1, 1, 0, None, 60.0, None, None, folder / "out", folder / "err")
    if act == "submit":
        assert client(folder).submit(folder / "job.sh", request) == "9"
    else:
        client(folder).cancel("1")
    asked(folder)
    answers.states(client(folder), ["1"], HOUR_S)
    answers.states(client(folder), ["1"], HOUR_S)
    assert asked(folder) == ["queue"]


def test_a_running_job_that_nobody_asked_about_is_not_taken_for_one_that_left_the_queue(folder: Path) -> None:
    naming = Client(Naming(folder), 10.0)
    assert answers.states(naming, ["1"], HOUR_S).jobs["1"].state is State.RUNNING
    assert answers.states(naming, ["2"], HOUR_S).jobs["2"].state is State.PENDING
    assert answers.states(naming, ["1", "2"], HOUR_S).jobs["1"].state is State.RUNNING
    assert asked(folder) == ["queue 1", "queue 1 2"], "a question about one job is one about all that are open"


def hang(folder: Path) -> None:
    """Let the queue's command never end; it still writes down that it was asked."""
    (folder / "queue").unlink()
    os.mkfifo(folder / "queue")


def brief(folder: Path, patience_s: float = 5.0) -> Client:
    """A client for somebody who does not wait for long, of a scheduler that may take an hour."""
    return Client(Noting(folder), HOUR_S, until_s=time.monotonic() + patience_s)


def test_a_scheduler_that_hangs_is_not_waited_for_and_what_it_said_is_shown_with_its_age(folder: Path) -> None:
    (folder / "records").write_text("7 FAILED\n")
    answers.states(client(folder), ["1", "7"], HOUR_S)
    hang(folder)
    age(folder, HOUR_S)
    found = answers.states(brief(folder), ["1", "2", "7", "8"], 1e-6).jobs
    assert found["1"].state is State.UNKNOWN and found["1"].hosts == ("n1",)
    assert re.fullmatch(f"RUNNING as of 60 min ago: {NOT_IN_TIME}", found["1"].reason)
    assert found["2"].reason.startswith("PENDING as of ") and found["7"].state is State.FAILED
    assert found["8"].state is State.UNKNOWN and re.fullmatch(NOT_IN_TIME, found["8"].reason), "nobody knows of it"
    assert asked(folder) == ["queue", "records 7", "queue"]


def test_the_second_question_about_jobs_has_the_time_that_the_first_one_left(folder: Path) -> None:
    (folder / "records").unlink()
    os.mkfifo(folder / "records")
    found = answers.states(brief(folder), ["1", "7"], HOUR_S).jobs
    assert found["1"].state is State.RUNNING and found["7"].state is State.UNKNOWN
    assert re.search(rf"accounting did not answer \({NOT_IN_TIME}", found["7"].reason)


def test_jobs_are_looked_for_by_their_name_once_in_an_interval(folder: Path) -> None:
    for _ in range(2):
        found = answers.named(client(folder), "token", HOUR_S)
        assert found and [*found] == ["1", "2"]
        answers.states(client(folder), ["1"], HOUR_S)
    assert asked(folder) == ["find", "queue"]


def test_a_job_that_is_looked_for_by_its_name_is_not_waited_for(folder: Path) -> None:
    with pytest.raises(NoAnswer, match="another process still waits for noting to answer"):
        answers.named(brief(folder, 0.0), "token", HOUR_S)


DAMAGE = [b"", b"{", b"[]", b"[" * 10**5, b"\xff"]
DAMAGE += [b'{"asked_s": "x"}', b'{"jobs": {"1": 1}}', b'{"starts": {"1": [1]}}']


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_answer_is_requested_again(damage: bytes, folder: Path) -> None:
    answers.states(client(folder), ["1"], HOUR_S)
    answers_file(Noting(folder)).write_bytes(damage)
    assert answers.states(client(folder), ["1"], HOUR_S).jobs["1"].state is State.RUNNING
    assert asked(folder) == ["queue", "queue"]


def test_without_a_place_for_answers_every_process_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/no/such")
    for _ in range(2):
        assert answers.states(client(folder), ["1"], HOUR_S).jobs["1"].state is State.RUNNING
    assert asked(folder) == ["queue", "queue"]


def test_a_scheduler_that_is_down_is_queried_once_per_interval_too(folder: Path) -> None:
    (folder / "queue").unlink()
    for jobs in (["1"], ["1"], ["1", "2"]):
        assert {status.state for status in answers.states(client(folder), jobs, HOUR_S).jobs.values()} == {
            State.UNKNOWN
        }
    assert asked(folder) == ["queue"], "also for a job that is new"


WATCHER = """
import sys
from pathlib import Path
from torusrun.orchestrator.schedulers import answers
from tests.unit.test_answers import HOUR_S, client
for line in sys.stdin:
    print(answers.states(client(Path(sys.argv[1])), ["1", "2", "3"], HOUR_S).jobs["1"].state.value, flush=True)
"""


@contextmanager
def held_lock(lock: Path) -> Iterator[None]:
    """Within, somebody at work holds this lock."""
    with lock.open("r+") as file:
        file.write("1".ljust(20))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_who_does_not_wait_long_does_not_wait_for_another_process_either(folder: Path) -> None:
    answers.states(client(folder), ["1"], HOUR_S)
    with held_lock(answers_file(Noting(folder)).with_suffix(".lock")):
        (status,) = answers.states(brief(folder), ["1"], 1e-6).jobs.values()
    assert re.fullmatch(r"RUNNING as of \d+ s ago: another process still waits for noting to answer", status.reason)
    assert asked(folder) == ["queue"]


def age(folder: Path, seconds: float) -> None:
    """Let the newest answer be so much older."""
    place = answers_file(Noting(folder))
    kept = json.loads(place.read_text())
    place.write_text(json.dumps({**kept, "asked_s": kept["asked_s"] - seconds, "told_s": kept["told_s"] - seconds}))


def test_many_processes_ask_once_per_interval(folder: Path) -> None:
    """Jobs 1 and 2 are in the queue, 3 is not: two commands each time."""
    command = [sys.executable, "-c", WATCHER, str(folder)]
    with contextlib.ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        watchers = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(4)]
        for _ in range(3):
            for watcher in watchers * 5:
                watcher.stdin.write("now\n")
            assert [watcher.stdout.readline() for watcher in watchers * 5] == ["RUNNING\n"] * 20
            assert asked(folder) == ["queue", "records 3"]
            age(folder, HOUR_S)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run whose job is 2."""
    monkeypatch.setattr(schedulers, "get", lambda name: Noting(folder))
    run = RunFolder(folder / "x-1")
    run.attempt(1).folder.mkdir(parents=True)
    run.plan.write_text(
        '{"schema": 1, "run": "x-1", "grid": [1, 1], "ranks": 1, "spec": {"site": "x"}, '
        '"site": {"scheduler": "noting", "launcher": "srun", "command_timeout": "1h", "poll_interval": "1h"}}'
    )
    ledger.append(run.ledger, Submitted(1, job="2", scheduler="noting"))
    return run


def test_a_job_that_began_after_the_scheduler_was_asked_is_running(folder: Path, run: RunFolder) -> None:
    assert views([run])[0].state is State.PENDING
    ledger.append(run.ledger, Started(1, job="2", hosts=("n4",), grid=(1, 1)))
    (view,) = views([run])
    assert (view.state, view.hosts) == (State.RUNNING, ("n4",)) and asked(folder) == ["queue"]
    views([run], fresh=True)
    assert asked(folder) == ["queue"], "whoever is about to act must know the state of now"


def test_status_does_not_wait_for_a_scheduler_that_hangs(
    folder: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    views([run])
    note_action(Noting(folder))
    hang(folder)
    monkeypatch.setattr(poll, "PATIENCE_S", 5.0)
    assert main(["status", str(run.folder)]) == 0
    assert re.search(rf"x-1 .* UNKNOWN .* PENDING as of \d+ s ago: {NOT_IN_TIME}$", capsys.readouterr().out, re.M)
