"""What the jobs of a run that keeps going do next: decided in a real run folder, without a scheduler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.clock import Clock
from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Patch
from tests.waiting import until
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job import recorded
from torusrun.orchestrator.job.recorded import placed
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts import keep_going as attempts
from torusrun.orchestrator.run.attempts.keep_going import Here, next_step
from torusrun.orchestrator.run.attempts.script import script
from torusrun.orchestrator.run.folder import claim, ledger
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import attempt_plan, plan_files
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.decide import Resume, Stop, Wait
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS

SITE = f"""scheduler: slurm
launcher: mpirun
node: {{{{ranks: 2}}}}
python: {sys.executable}
runs: {{home}}/runs
command_timeout: 5s
"""
RUN = """name: kept
site: ./site.yaml
nodes: 4
keep_going: {attempts: 5, min_nodes: 1}
train: {batch: 64}
"""
HERE = Here("7", "7_0", first=1, hosts=4)
TASK = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
LIMIT = ended(How.TIME_NEAR, limit_s=60.0)


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run on a cluster, whose first attempt has begun in the first task of its array."""
    (home / "site.yaml").write_text(SITE.format(home=home))
    (home / "run.yaml").write_text(RUN)
    first = attempt_plan.first(plan(home / "run.yaml"))
    made = RunFolder(first.plan.folder)
    text = script(first, made.attempt(1))
    assert "#SBATCH --array=0-4%1" in text
    create.run(first, home, text, Submitting(1, "kept.1", after=("/runs/awaited",), jobs=5))
    ledger.append(made.ledger, Submitted(1, "7", "slurm"))
    ledger.append(made.ledger, Started(1, "7_0", ("n1", "n2", "n3", "n4"), (8,)))
    return made


def over(run: RunFolder, end: End, number: int = 1) -> None:
    end.write(run.attempt(number).end)
    if end.certain:
        ledger.append(run.ledger, Ended.by(number, end))


def test_the_next_attempt_has_a_folder_and_says_what_it_follows(run: RunFolder) -> None:
    over(run, LIMIT)
    assert next_step(run, HERE, begin=False) == Resume(2) and not run.attempt(2).folder.exists()
    assert next_step(run, replace(HERE, name="7_1"), begin=True) == Resume(2)
    intent = ledger.last(ledger.events(run.ledger), Submitting, 2)
    assert intent and (intent.follows, bool(intent.by), intent.jobs, intent.after) == (1, True, 5, ("/runs/awaited",))
    assert not run.attempt(2).script.exists(), "the job that is at work begins it"
    assert next_step(run, HERE, begin=True) == Resume(2), "it has not begun: the same attempt, not a third one"


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (ended(How.ALL_WELL), "is done"),
        (ended(How.CANCELLED), "was asked to stop"),
        (ended(How.DROPPED, awaited="awaited", state="FAILED"), "its dependency dropped it"),
    ],
)
def test_an_end_after_which_nothing_follows_closes_the_run(run: RunFolder, end: End, why: str) -> None:
    over(run, end)
    step = next_step(run, HERE, begin=True)
    assert isinstance(step, Stop) and step.why.startswith(why)
    closed = ledger.last(ledger.events(run.ledger), KeptGoing, 1)
    assert closed and closed.why == step.why and not run.attempt(2).folder.exists()


def test_an_attempt_without_an_end_is_over_when_the_next_job_asks(run: RunFolder) -> None:
    assert next_step(run, replace(HERE, name="7_1"), begin=True) == Resume(2)
    end = ledger.last(ledger.events(run.ledger), Ended, 1)
    assert end and end.state is State.FAILED and "without a record of the attempt's end" in end.reason


def test_a_job_that_began_again_without_its_first_host_names_that_host(run: RunFolder, monkeypatch: Patch) -> None:
    said = Finished(
        ("pbsnodes", "pn1"), 0, (Path(__file__).parent / "recorded/openpbs/chain/node_down.txt").read_text(), ""
    )
    assert PBS().host_query("pn1").command == list(said.argv)
    monkeypatch.setattr(Client, "lost", lambda asked, host: PBS().host_query(host).read(said))
    run.attempt(1).pulse.write_text("pn1\n")
    assert next_step(run, HERE, begin=True) == Resume(2)
    end = ledger.last(ledger.events(run.ledger), Ended, 1)
    assert end and (end.cause, end.hosts) == (Cause.HOST_LOST, ("pn1",))
    assert "lost pn1, the first host of its job" in end.reason and "node down: communication closed" in end.reason
    alive = Finished(said.argv, 0, said.stdout.replace("state = down", "state = free"), "")
    assert PBS().host_query("pn1").read(alive) == ""


def test_a_setup_that_fails_before_anything_began_closes_the_run_with_its_end_on_record(run: RunFolder) -> None:
    lines = [line for line in run.ledger.read_text().splitlines() if '"started"' not in line]
    run.ledger.write_text("\n".join(lines) + "\n")
    over(run, replace(ended(How.USER_ERROR, why="`module load x` ended with exit code 1"), certain=False))
    assert isinstance(next_step(run, HERE, begin=True), Stop)
    events = ledger.events(run.ledger)
    assert ledger.last(events, Ended, 1) and ledger.last(events, KeptGoing, 1)


def test_a_job_of_another_submission_or_a_superseded_one_leaves_the_run_alone(run: RunFolder) -> None:
    over(run, LIMIT)
    with alone(run):
        planned = replace(plan_files.read_attempt(run, 1), number=2)
        create.attempt(run.attempt(2), planned)
        ledger.append(run.ledger, Submitting(2, "kept.2", jobs=5))  # whether it was submitted is not known
    assert next_step(run, HERE, begin=True) == Stop("continues in another job")
    later = replace(HERE, first=2, begun=1)
    assert next_step(run, later, begin=True) == Stop("continues in another job", later_job=True)
    assert not [event for event in ledger.events(run.ledger) if isinstance(event, KeptGoing)]
    assert next_step(run, replace(HERE, job="8", name="8_0", first=2), begin=True) == Resume(2)


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("started", [True, False])
def test_a_job_that_a_later_one_has_passed_does_not_end_its_attempt(run: RunFolder, begun: int, started: bool) -> None:
    """As one that lives on after its scheduler's daemon was killed, or was stopped for a while."""
    over(run, LIMIT)
    assert next_step(run, replace(HERE, name="7_1"), begin=True) == Resume(2)
    if started:
        ledger.append(run.ledger, Started(2, "7_1", ("n1",), (8,)))
    before = run.ledger.read_bytes()
    orphan, lock = replace(HERE, begun=begun, later=("7_1", "7_2")), claim.hold(run.attempt(2))
    assert next_step(run, orphan, begin=True) == Stop("continues in another job", later_job=True)
    assert run.ledger.read_bytes() == before
    os.close(lock)
    in_charge = replace(HERE, name="7_2", later=("7_3",))
    if started and not begun:
        in_charge = replace(orphan, begun=0)  # begun again by its scheduler, after the job that had passed it
    assert next_step(run, in_charge, begin=True) == Resume(2 + started)


FAILS = ended(How.LAUNCHER_FAILED, exit_code=1, said="Unable to contact slurm controller", certain=False)


def test_attempts_that_the_launcher_ends_are_not_in_vain_and_follow_more_and_more_slowly(
    run: RunFolder, monkeypatch: Patch
) -> None:
    waits = []
    FAILS.write(run.attempt(1).end)
    for number in range(1, 8):
        monkeypatch.setattr(attempts, "time", Clock(time.time()))
        step = next_step(run, replace(HERE, begun=number), begin=True)
        if isinstance(step, Wait):
            waits.append(step.for_s)
            monkeypatch.setattr(attempts, "time", Clock(time.time() + step.for_s))
            step = next_step(run, replace(HERE, begun=number), begin=True)
        assert step == Resume(number + 1)
        ledger.append(run.ledger, Started(number + 1, "7_0", ("n1",), (8,)))
        FAILS.write(run.attempt(number + 1).end)
    assert waits == pytest.approx([5, 15, 60, 180, 600, 600], abs=3)
    step = next_step(run, replace(HERE, begun=8), begin=True)
    assert isinstance(step, Stop) and step.why.startswith("each of its 8 attempts"), "nothing shows that it can work"


@pytest.mark.parametrize("error", [KeyError("host"), OSError(116, "Stale file handle")])
def test_a_defect_ends_the_run_at_once_and_what_may_pass_does_not(
    error: Exception, run: RunFolder, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> End:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(home))
    end = recorded.recorded(run, run.attempt(1), fails)
    step = next_step(run, replace(HERE, begun=1), begin=True)
    assert "this is a defect of torusrun" in end.reason
    if isinstance(error, OSError):
        assert end.cause is Cause.UNKNOWN and step == Resume(2)
    else:
        assert isinstance(step, Stop) and step.why.startswith("a defect of torusrun")
        assert look(run).state is State.FAILED


CHAINED = """
step 1
Traceback (most recent call last):
  File "/runs/x/attempts/1/read.py", line 3, in read
    return files[name]
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/runs/x/attempts/1/train.py", line 30, in <module>
    main()
  File "/runs/x/attempts/1/data/load.py", line 12, in load
    raise ValueError(f"process {os.getpid()} has no file") from error
ValueError: process 4711 has no file
[W1127 socket.cpp:200] closed
  File "/usr/lib/python3/logging/__init__.py", line 1, in emit
"""
BOXED = """
╭──────────────── Traceback (most recent call last) ─────────────────╮
│ /home/me/train.py:6 in <module>                             │
│                                                                    │
│ ❱ 6 main()                                                         │
│                                                                    │
│ /home/me/train.py:5 in main                                 │
│                                                                    │
│ ❱ 5 │   forward(7)                                                 │
│                                                                    │
│ /home/me/train.py:3 in forward                              │
│                                                                    │
│ ❱ 3 │   raise RuntimeError(f"bad {x}")                             │
╰────────────────────────────────────────────────────────────────────╯
RuntimeError: bad 7
"""


@pytest.mark.parametrize(
    ("log", "said", "place"),
    [
        (CHAINED, "ValueError: process 4711 has no file", "load.py:12"),
        (BOXED, "RuntimeError: bad 7", "train.py:3"),
        ('  File "<string>", line 1, in <module>\nValueError: 7', "ValueError: 7", "<string>:1"),
        ("it is broken\n", "it is broken", None),
        ("", "ValueError: process 4711 has no file", None),
    ],
)
def test_the_place_of_an_error_and_the_step_of_a_heartbeat_are_evidence(
    run: RunFolder, log: str, said: str, place: str | None
) -> None:
    attempt = run.attempt(1)
    for path, text in ((attempt.rank_log(3), log), (attempt.heartbeat, "57\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    by = RankEnd(3, "n2", 1, 1.0, exit_code=1)
    end = placed(attempt, ended(How.FAILED, by=by, said=said))
    assert (end.evidence.get("place"), end.step) == (place, 57)
    attempt.heartbeat.write_text("evaluation")
    assert placed(attempt, ended(How.FAILED, by=by, said=said)).step is None
    assert placed(attempt, LIMIT) == LIMIT


PAUSES = """
import sys, time
from pathlib import Path
from torusrun.orchestrator.job import own_run
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.state.decide import Wait
from tests.unit.clock import Clock
own_run.time = clock = Clock(time.time())
run = RunFolder(Path(sys.argv[1]))
jobs, began_s = own_run.OwnRun(run, run.attempt(1), plan_files.read_first(run, 1)), clock.now_s
assert jobs._pause(Wait("waits", 15.0)) and 15 <= clock.now_s - began_s < 16
assert not jobs._pause(Wait("waits", 1e6)) and clock.now_s < jobs.until_s, "the next job continues the run"
jobs.asked_s = clock.now_s
assert jobs._pause(Wait("waits", 15.0)) and clock.now_s < jobs.until_s
"""


def test_a_job_pauses_as_long_as_it_has_time_and_nobody_ends_it(run: RunFolder) -> None:
    subprocess.run([sys.executable, "-c", PAUSES, str(run.folder)], env={**os.environ, **TASK}, check=True, timeout=240)


ENDS = """
import sys
from pathlib import Path
from torusrun.orchestrator.job.own_run import OwnRun
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.state.decide import Stop
run = RunFolder(Path(sys.argv[1]))
jobs = OwnRun(run, run.attempt(1), plan_files.read_first(run, 1))
step = Stop("is over", later_job=sys.argv[2] == "True")
state = jobs._nothing_left(step)
assert state.value == "TIMEOUT", "its exit code says how the run ended"
"""


@pytest.mark.parametrize("later_job", [True, False])
def test_a_job_keeps_later_tasks_if_one_of_them_works_for_the_run(run: RunFolder, home: Path, later_job: bool) -> None:
    over(run, LIMIT)
    (home / "bin").mkdir()
    (home / "bin" / "scancel").write_text(f'#!/bin/sh\necho "$*" >> {home}/cancelled\n')
    (home / "bin" / "scancel").chmod(0o755)
    environment = {**os.environ, **TASK, "PATH": f"{home}/bin:{os.environ['PATH']}"}
    argv = [sys.executable, "-c", ENDS, str(run.folder), str(later_job)]
    subprocess.run(argv, env=environment, check=True, timeout=240)
    assert (home / "cancelled").exists() != later_job


def test_fewer_hosts_mean_the_most_nodes_that_the_batch_fits_on_and_the_next_job_has_all_again(run: RunFolder) -> None:
    over(run, ended(How.HOST_LOST, hosts=["n4"], said="gone"))
    assert next_step(run, replace(HERE, hosts=3), begin=True) == Resume(2)  # 64 does not divide by 6 ranks
    assert plan_files.read_attempt(run, 2).plan.run.nodes == 2
    ledger.append(run.ledger, Started(2, "7_0", ("n1", "n2"), (4,)))
    over(run, LIMIT, 2)
    assert next_step(run, replace(HERE, name="7_1"), begin=True) == Resume(3)
    assert plan_files.read_attempt(run, 3).plan.run.nodes == 4


def test_a_run_that_fits_on_no_number_of_hosts_that_is_left_is_left_to_the_next_job(run: RunFolder) -> None:
    over(run, ended(How.HOST_LOST, hosts=["n1"], said="gone"))
    with pytest.raises(UserError, match="does not fit on any number of nodes from 1 to 0"):
        next_step(run, replace(HERE, hosts=0), begin=True)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            "{without_progress: 9}",
            "run.yaml:4:32: 'keep_going.without_progress' has no effect without other keys; add",
        ),
        ("{without_progress: 9, attempts: 2}", ""),
        ("{without_progress: 9, spares: 1}", ""),
    ],
)
def test_a_limit_of_attempts_in_vain_alone_is_a_mistake(home: Path, keys: str, says: str) -> None:
    (home / "site.yaml").write_text(SITE.format(home=home))
    (home / "run.yaml").write_text(
        f"name: kept\nsite: ./site.yaml\nnodes: 4\nkeep_going: {keys}\ntrain: {{batch: 64}}\n"
    )
    if says:
        with pytest.raises(SpecError, match=re.escape(says)):
            plan(home / "run.yaml")
    else:
        assert plan(home / "run.yaml").run.keep_going.without_progress == 9


def test_a_job_that_is_asked_to_end_between_two_attempts_begins_none(home: Path) -> None:
    local = (
        SITE.replace("slurm", "local").replace("mpirun", "spawn").replace("{{ranks: 2}}", "{{ranks: 2, interface: lo}}")
    )
    (home / "site.yaml").write_text(local.format(home=home))
    (home / "run.yaml").write_text("name: kept\nsite: ./site.yaml\ncode: none\ncommand: [sh, -c, 'exit 1']\n"
                                   "keep_going: {attempts: 9, without_progress: 9}\n")  # fmt: skip
    first = attempt_plan.first(plan(home / "run.yaml"))
    made = RunFolder(first.plan.folder)
    create.run(first, home, script(first, made.attempt(1)), Submitting(1, "kept.1", jobs=9))
    argv = [sys.executable, "-m", "torusrun.orchestrator.job.loop", str(made.attempt(1).folder)]
    with alone(made), open(home / "said", "wb") as said:
        job = subprocess.Popen(argv, stdout=said, stderr=said)
        until(lambda: b"on " in (home / "said").read_bytes(), "the job to begin")
        job.send_signal(signal.SIGTERM)
    assert job.wait(240) == 1
    assert not made.attempt(1).end.exists() and not made.attempt(2).folder.exists()


def test_a_step_of_the_script_that_fails_in_a_later_job_is_the_end_of_its_attempt(run: RunFolder) -> None:
    over(run, LIMIT)
    argv = [sys.executable, "-m", "torusrun.orchestrator.job.loop", str(run.attempt(1).folder), "`module load x`", "3"]
    later = {**os.environ, **TASK, "SLURM_ARRAY_TASK_ID": "1"}
    assert subprocess.run(argv, env=later, timeout=240, check=False).returncode == 1
    end = End.read(run.attempt(2).end)
    assert end and end.cause is Cause.CONFIGURATION and not end.certain
    assert end.reason.startswith("`module load x` ended with exit code 3 on ") and not run.attempt(3).folder.exists()


def test_the_record_of_an_end_that_cannot_be_read_stays(run: RunFolder, monkeypatch: Patch) -> None:
    monkeypatch.setattr(recorded, "time", Clock())
    path = run.attempt(1).end
    path.write_text("{")
    assert not recorded.end_of(run.attempt(1), 1).certain and path.read_text() == "{"
    path.unlink()
    killed = recorded.end_of(run.attempt(1), -9)
    assert killed == End.read(path) and killed.cause is Cause.KILLED and "killed by SIGKILL" in killed.reason
    LIMIT.write(path)
    assert recorded.end_of(run.attempt(1), -9) == LIMIT


WRITTEN = {  # while a slow squeue is asked, by the jobs of the run
    "the end of the run": [
        Ended.by(1, ended(How.NO_END)),
        Submitting(2, "kept.1", follows=1, by="7_0", jobs=5),
        Submitted(2, "7", "slurm"),
        Started(2, "7_1", ("n1",), (8,)),
        Ended.by(2, ended(How.NO_END)),
        KeptGoing(2, "2 attempts in a row made no new checkpoint"),
    ],
    "nothing": [],
}


@pytest.mark.parametrize(
    ("written", "done", "state"),
    [
        ("the end of the run", False, State.FAILED),
        ("nothing", False, State.LOST),
        ("nothing", True, State.COMPLETED),
    ],
)
def test_a_run_is_not_completed_by_the_exit_code_of_its_jobs(
    run: RunFolder, home: Path, monkeypatch: Patch, written: str, done: bool, state: State
) -> None:
    ledger_now, later = run.ledger.read_bytes(), home / "later.jsonl"
    for event in WRITTEN[written]:
        ledger.append(run.ledger, event)
    later.write_bytes(run.ledger.read_bytes()[len(ledger_now) :])
    run.ledger.write_bytes(ledger_now)
    slurm = SlurmPrograms(home, monkeypatch, "command: [sleep, '600']")
    is_done = f"""; echo '{{"attempt": 1}}' > "{run.attempt(1).done}" """ if done else ""
    slurm.program("squeue", f'cat "{later}" >> "{run.ledger}"{is_done}')
    slurm.program("sacct", "printf '7_0|FAILED|0:9|n1\\n7_1|FAILED|0:9|n1\\n7_2|COMPLETED|0:0|n1\\n'")
    seen = look(run)
    assert seen.state is state, seen.reason
    told = [event.state for event in ledger.events(run.ledger) if isinstance(event, Ended)]
    assert (State.COMPLETED in told) == done and (state is State.LOST) == (told == [])
