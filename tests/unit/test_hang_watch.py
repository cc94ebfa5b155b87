"""A supervisor that watches for hangs, by the files that ranks, wrappers and programs write, and by a test's clock."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.clock import Clock
from tests.unit.run_folders import write_specs
from tests.waiting import until
from torusrun.orchestrator.base import proc
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.job.gather import RankRecords
from torusrun.orchestrator.job.hangs import hang_watch
from torusrun.orchestrator.job.hangs.hang import NOT_BEGUN, Where, stack, symptom
from torusrun.orchestrator.job.hangs.hang_watch import HangWatch
from torusrun.orchestrator.job.hangs.patience import Symptom
from torusrun.orchestrator.job.load.step_times import BeatFile
from torusrun.orchestrator.place.placement.mapping import Grid, place
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.at_work import Beat, NodeLoad, RankSteps
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.training.reporting.heartbeat import EVALUATION, STEPS
from torusrun.training.reporting.metrics import Metrics

PLACED = place(Grid((4,)), ["n1", "n2"], 2)
WAITS = Where("S", ["/x/training/collectives/torus.py:61 _wait"])
STACK = 'Stack (most recent call first):\n  File "/x/training/collectives/torus.py", line 61 in _wait\n'


ASLEEP = "import time; print(1, flush=True); time.sleep(600)"
WAITS_FOR_SLEEP = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(1, flush=True); p.wait()"
# What a rank's process does without a word, and what that shows: as programs of Python.
REAL = {
    "sleeps": (ASLEEP, Symptom.UNSEEN),
    "computes in a thread": (
        f"import threading; threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start(); {ASLEEP}",
        Symptom.WORKING,
    ),
    "computes in a subprocess": (
        "import subprocess, sys; print(1, flush=True); subprocess.run([sys.executable, '-c', 'while 1: pass'])",
        Symptom.WORKING,
    ),
    "reads slowly": (
        "import time; print(1, flush=True)\nwhile 1: open('/proc/cpuinfo').read(2000); time.sleep(0.1)",
        Symptom.WORKING,
    ),
    "starts programs": (
        "import subprocess, time; print(1, flush=True)\nwhile 1: time.sleep(0.05); subprocess.Popen(['sleep', '600'])",
        Symptom.WORKING,
    ),
}


class Job:
    """A watched attempt: its folder, its clock, and wrappers that answer at once with `states` if they can."""

    def __init__(self, planned: Plan, clock: Clock, number: int = 1) -> None:
        self.planned, self.run = planned, RunFolder(planned.folder)
        self.attempt: Attempt = self.run.attempt(number)
        self.attempt.ranks.mkdir(parents=True)
        self.attempt.logs.mkdir()
        self.clock, self.queries = clock, 0
        self.states: list[str | None] = ["S"] * 4
        self.watch = HangWatch(planned, self.run, self.attempt, PLACED, self._answer)

    def _answer(self) -> None:
        self.queries += 1
        for rank, state in enumerate(self.states):
            if state is not None:
                with contextlib.suppress(SiteError):
                    write_json(self.attempt.rank_seen(rank), {"process": state, "disk": False})
                with contextlib.suppress(OSError), self.attempt.rank_log(rank).open("a") as log:
                    log.write(STACK)

    def looks(self, seconds: int, act: Callable[[int], Any] = lambda second: None) -> Iterator[End]:
        """The ends that `seconds` looks, one a second, find; `act` happens before each."""
        for second in range(seconds):
            act(second)
            self.clock.sleep(1.0)
            if end := self.watch.look(self.clock.now_s):
                yield end

    def step(self, second: int) -> None:
        Beat(STEPS, second).write(self.attempt.beat)

    def ended_s(self, seconds: int = 1000) -> float:
        """How long until an end is found."""
        began_s = self.clock.now_s
        self.end = next(self.looks(seconds))
        return self.clock.now_s - began_s


@pytest.fixture
def job(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    def made(**of_run: Any) -> Job:
        clock = Clock()
        monkeypatch.setattr(hang_watch, "time", clock)
        planned = plan(write_specs(home))
        return Job(replace(planned, run=replace(planned.run, **of_run)), clock)

    return made


def test_the_time_in_which_a_service_has_its_own_limit_is_no_pause(job: Callable[..., Job]) -> None:
    training, awaited = job(), [True]
    training.watch = HangWatch(
        training.planned, training.run, training.attempt, PLACED, training._answer, awaited=lambda: awaited[0]
    )
    assert not list(training.looks(20, training.step))
    training.states[2] = "T"
    assert not list(training.looks(1000))
    awaited[0] = False
    assert training.ended_s() <= 14 and training.end.ranks == (2,)


def test_a_stopped_rank_ends_a_training_after_ten_seconds(job: Callable[..., Job]) -> None:
    training = job()
    assert not list(training.looks(20, training.step))
    training.states[2] = "T"
    assert 10 <= training.ended_s() <= 14
    assert training.end.cause is Cause.HANG and training.end.ranks == (2,)
    reason = training.end.reason
    assert reason.startswith("no progress for 1") and " (limit: 10 s for steps): rank 2" in reason


@pytest.mark.parametrize(("grid", "least_s"), [((4,), 10), ((2, 2), 60)])
def test_right_after_a_restart_a_stopped_rank_ends_a_training_as_soon_if_it_has_the_same_grid(
    job: Callable[..., Job], grid: tuple[int, ...], least_s: int
) -> None:
    first = job()
    for number in (1, 2):
        ledger.append(first.run.ledger, Started(number, "7", ("n1", "n2"), grid))
    rows = [{"event": "step", "attempt": 1, "step": step, "t": 100 + step / 50} for step in (25, 50, 75)]
    rows += [{"event": "step", "attempt": 2, "step": step, "t": step} for step in (80, 85)]  # a slow start, and its end
    first.run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    third = Job(first.planned, first.clock, number=3)
    assert not list(third.looks(2, third.step))
    third.states[2] = "T"
    assert least_s <= third.ended_s() <= least_s + 4
    assert f"(limit: {least_s} s for steps): rank 2" in third.end.reason


def test_ranks_that_wait_for_one_another_have_longer_and_an_evaluation_longest(job: Callable[..., Job]) -> None:
    training = job()
    assert not list(training.looks(20, training.step))
    Beat(EVALUATION, 19).write(training.attempt.beat)
    assert not list(training.looks(300))
    assert not list(training.looks(20, lambda second: training.step(second + 20)))
    assert 20 <= training.ended_s() <= 25 and "all ranks are at work or wait" in training.end.reason


@pytest.mark.parametrize("readable", [True, False])
def test_a_host_without_a_sign_of_life_ends_a_training(readable: bool, job: Callable[..., Job]) -> None:
    training = job()
    if not readable:
        training.run.metrics.mkdir()
    for rank in range(4):
        training.attempt.rank_start(rank).write_text("{}")
    assert not list(training.looks(20, training.step))
    training.states = ["S", "S", None, None]
    assert 20 <= training.ended_s() <= 27
    assert training.end.cause is Cause.HOST_LOST and training.end.hosts == ("n2",)


def test_a_disk_that_takes_nothing_stops_the_clock(job: Callable[..., Job]) -> None:
    training = job()
    assert not list(training.looks(20, training.step))
    training.attempt.probe.mkdir()  # as a full or a dead disk, it cannot be written
    assert not list(training.looks(400)) and not training.queries


def test_steps_that_only_another_node_can_report_are_progress(job: Callable[..., Job]) -> None:
    training = job()
    assert not list(training.looks(20, training.step))

    def elsewhere(second: int) -> None:
        steps = RankSteps(2, 1.0, 20 + second // 5, 0.5, 0.7)
        NodeLoad(1000.0, 5.0, 4, ranks=(steps,)).write(training.attempt.node_load(2))

    assert not list(training.looks(100, elsewhere))
    assert training.ended_s() >= 20


def test_the_stacks_of_a_query_are_no_progress(job: Callable[..., Job]) -> None:
    training = job()
    assert 600 <= training.ended_s(2000) <= 610 and "for the start" in training.end.reason
    measured = job(hang_timeout_s=100.0)
    Metrics(measured.run.metrics, 1).write("measured", step=0)
    assert 100 <= measured.ended_s(2000) <= 105


def touch(path: Path, at_s: float, text: str = "") -> None:
    path.write_text(text)
    os.utime(path, (at_s, at_s))


def test_a_program_that_touches_its_heartbeat_is_ended_in_seconds_and_one_without_a_sign_never(
    job: Callable[..., Job],
) -> None:
    program = job(command=("mine",))
    assert not list(program.looks(1500)) and program.queries == 2, "at 10 and 14 min"
    assert not list(program.looks(20, lambda second: touch(program.attempt.heartbeat, second)))
    touch(program.attempt.heartbeat, 100.0, "evaluation\n")
    assert not list(program.looks(300))
    assert not list(program.looks(20, lambda second: touch(program.attempt.heartbeat, 200.0 + second, str(second))))
    assert 20 <= program.ended_s() <= 25


@contextlib.contextmanager
def started(program: str) -> Iterator[int]:
    """The process of a program of Python that has printed a line, in a group of its own, which is killed."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def where_is(pid: int) -> Where:
    """The answer of a wrapper without py-spy, of a process that is not at work in this moment."""
    return Where("S", work=proc.work_of(pid))


@pytest.mark.parametrize("does", REAL)
def test_what_real_processes_do_is_seen_without_their_stacks(does: str) -> None:
    program, shows = REAL[does]
    with started(program) as pid:
        first = where_is(pid)
        assert first.work

        def second() -> Symptom | None:
            work = proc.work_of(pid)
            late = first.work and work.at_s > first.work.at_s + 0.5  # of which an idle process computes nothing
            found = symptom([0], {0: Where("S", work=work)}, {0: first})
            return found if (late if shows is Symptom.UNSEEN else found is shows) else None

        assert until(second, f"a process that {does} to show it") is shows


def test_a_process_behind_a_shell_is_seen_to_be_stopped_or_at_work() -> None:
    with started(WAITS_FOR_SLEEP) as pid:
        now = where_is(pid)
        assert symptom([0], {0: now}, {0: now}, idle_s=60.0) is Symptom.WORKING
        assert now.work
        old = replace(now, work=replace(now.work, youngest_s=now.work.at_s - 100.0))
        assert symptom([0], {0: old}, {0: old}, idle_s=60.0) is Symptom.UNSEEN
    with started(WAITS_FOR_SLEEP) as pid:
        os.kill(proc.descendants(pid)[-1], signal.SIGSTOP)
        until(lambda: proc.work_of(pid).stopped, "the stop")


@pytest.mark.parametrize(("work", "least_s"), [(0.0, 60), (0.2, 600)])
def test_ranks_of_a_program_that_wait_for_data_have_ten_minutes_and_silent_ones_a_minute(
    work: float, least_s: int, job: Callable[..., Job]
) -> None:
    """All ranks sleep without a stack; a loader of each computes for `work` of a core."""
    program = job(command=("mine",))
    assert not list(program.looks(20, lambda second: touch(program.attempt.heartbeat, second)))
    began_s = program.clock.now_s

    def answer() -> None:
        spent = proc.Work(program.clock.now_s, work * (program.clock.now_s - began_s), 0, 0, 1.0, (7, 8), stopped=False)
        for rank in range(4):
            program.attempt.rank_start(rank).write_text("{}")
            write_json(program.attempt.rank_seen(rank), {"process": "S", "disk": False, "work": asdict(spent)})

    program.watch._query = answer
    assert least_s <= program.ended_s() <= least_s + 4


def test_a_beat_is_written_at_most_once_a_second_and_over_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "beat.json"
    beats, written = BeatFile(path), []
    for tenth in range(50):
        beats.put(Beat(STEPS, tenth))
        beats.look(100.0 + tenth / 10)
        written.append(Beat.read(path))
    assert len(set(written)) == 5 and written[0] == Beat(STEPS, 0)
    inode = path.stat().st_ino
    Beat("first step", 10**15).write(path)
    assert path.stat().st_ino == inode and Beat.read(path) == Beat("first step", 10**15)
    path.write_text(json.dumps({"doing": "\x1b[2J", "step": 1}))
    assert Beat.read(path) is None


@pytest.mark.parametrize(
    ("now", "before", "shows"),
    [
        ({0: WAITS, 1: Where("T")}, {}, Symptom.STOPPED),
        ({0: WAITS, 1: Where("Z")}, {}, Symptom.STOPPED),
        ({0: WAITS}, {}, Symptom.SILENT),
        ({}, {}, Symptom.UNKNOWN),
        ({0: WAITS, 1: WAITS}, {}, Symptom.WAITING),
        ({0: WAITS, 1: Where("S", ["/x/mine.py:9 load"])}, {}, Symptom.WAITING),
        ({0: WAITS, 1: Where("S", ["/x/mine.py:9 load"])}, {1: Where("S", ["/x/mine.py:7 load"])}, Symptom.WORKING),
        ({0: WAITS, 1: Where("R", ["/x/mine.py:9 load"])}, {}, Symptom.WORKING),
        ({0: WAITS, 1: Where("S", ["/l/queue.py:9 get", "/x/training/data/feed.py:7 take"])}, {}, Symptom.WORKING),
        ({0: WAITS, 1: Where("D")}, {}, Symptom.WORKING),
        ({0: WAITS, 1: Where("S", WAITS.stack, disk=True)}, {}, Symptom.WORKING),
        (
            {0: WAITS, 1: Where("S", ["/l/queue.py:9 get", "/l/torch/utils/data/dataloader.py:7 f"])},
            {},
            Symptom.WORKING,
        ),
        ({0: WAITS, 1: Where("S", ["/l/selectors.py:9 select", "/l/subprocess.py:7 run"])}, {}, Symptom.WORKING),
        ({0: WAITS, 1: Where("S")}, {}, Symptom.UNSEEN),
        ({0: WAITS, 1: Where("t")}, {}, Symptom.WORKING),
        ({0: WAITS, 1: Where(NOT_BEGUN)}, {}, Symptom.WORKING),
        ({0: Where("R"), 1: Where("S")}, {}, Symptom.WORKING),
        ({0: WAITS, 1: Where("S", ["/l/torch/distributed/pipelining/schedules.py:9 f"])}, {}, Symptom.WAITING),
        ({0: WAITS, 1: Where("R", ["/l/torch/distributed/checkpoint/filesystem.py:9 f"])}, {}, Symptom.WORKING),
    ],
)
def test_what_answers_show(now: dict[int, Where], before: dict[int, Where], shows: Symptom) -> None:
    assert symptom(range(2), now, before) is shows


@pytest.mark.parametrize(("kept", "shows"), [("compute", Symptom.WORKING), ("all_gather", Symptom.WAITING)])
def test_a_rank_that_computes_in_fsdp_does_not_wait_for_others(kept: str, shows: Symptom) -> None:
    """By stacks of two ranks of PyTorch 2.13, of which one computes and the other waits for it."""
    frames = stack((Path(__file__).parent / "recorded" / "stacks" / f"fsdp_{kept}.log").read_text().splitlines())
    assert any("torch/distributed/fsdp/" in frame for frame in frames)
    assert symptom([0], {0: Where("R", frames)}, {}) is shows


def test_a_stack_of_a_hundred_frames_is_found_in_a_log(job: Callable[..., Job]) -> None:
    training = job()
    training.attempt.rank_start(0).write_text("{}")
    training.attempt.rank_seen(0).write_text('{"process": "R", "disk": false}')
    frame = '  File "/x/mine.py", line 7 in call\n'
    training.attempt.rank_log(0).write_text("step 3\nStack (most recent call first):\n" + 100 * frame)
    assert len(RankRecords(training.attempt).where([0])[0].stack) == 100
    training.attempt.rank_seen(0).write_text('{"process": "R", "disk": false, "stack": false}')
    assert not RankRecords(training.attempt).where([0])[0].stack, "it is of an earlier query"


def test_ranks_that_have_ended_are_not_waited_for(job: Callable[..., Job]) -> None:
    program = job(command=("mine",))
    for rank in range(4):
        touch(program.attempt.rank_start(rank), 100.0, "{}")
    assert not list(program.looks(20, lambda second: touch(program.attempt.heartbeat, second)))
    for rank, slot in enumerate(PLACED.slots[1:], 1):
        RankEnd(rank, slot.host, slot.local_rank, 100.0, 0).write(program.attempt.rank_end(rank))
        program.states[rank] = None
    touch(program.attempt.heartbeat, 100.0, "export\n")
    assert not list(program.looks(300, lambda second: touch(program.attempt.rank_start(0), 100.0 + second, "{}")))
    program.states[0] = "T"
    assert program.ended_s() <= 400 and program.end.ranks == (0,), program.end
    assert symptom([], {}, {}) is Symptom.UNKNOWN


def test_a_rank_that_ends_after_a_query_is_not_taken_for_a_silent_one(job: Callable[..., Job]) -> None:
    training = job()
    for rank in range(4):
        training.attempt.rank_start(rank).write_text("{}")
    assert not list(training.looks(80, lambda second: training.step(second // 4)))
    training.states = ["D", "S", "S", None]
    assert not list(training.looks(70))
    RankEnd(3, "n2", 1, 100.0, 0).write(training.attempt.rank_end(3))
    assert training.ended_s() >= 500
