"""A launcher at work, watched by the clock of the test: real processes, which are told, asked and given up."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.clock import Clock
from tests.unit.run_folders import write_specs
from tests.waiting import until
from torusrun.orchestrator.base import proc, process
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import running
from torusrun.orchestrator.job.hangs import hang_watch
from torusrun.orchestrator.job.running import Running
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.training.reporting.metrics import Metrics

STOP = ended(How.CANCELLED)
HANG_S = 20.0
LOOP = "touch ready; while :; do sleep 0.01; done"
ENDLESS = "exec sleep 1000"
ANY, OURS = Program(("true",)), Program(("true",), records_done=True)
Start = Callable[..., Running]


class Passing(Clock):
    """A clock that passes quickly: processes get some milliseconds of each wait."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        time.sleep(0.003)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Passing:
    made = Passing()
    for module in (running, hang_watch):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def run(home: Path, clock: Passing) -> RunFolder:
    made = RunFolder(plan(write_specs(home)).folder)
    made.attempt(1).ranks.mkdir(parents=True)
    return made


@pytest.fixture
def watched(home: Path, run: RunFolder) -> Iterator[Start]:
    """Starts a launcher, a program of sh in the attempt's folder; `kill_after_s` is what a stop may take."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        script: str,
        asked: Callable[[], End | None] = lambda: None,
        kill_after_s: float = 1e4,
        command: tuple[str, ...] = (),
        program: Program = ANY,
        hosts: tuple[str, ...] = ("here",),
    ) -> Running:
        made, attempt = plan(home / "run.yaml"), run.attempt(1)
        made = replace(
            made,
            run=replace(made.run, hang_timeout_s=HANG_S, command=command),
            site=replace(made.site, kill_after_s=kill_after_s),
        )
        launcher = process.start(
            ["sh", "-c", script], environment={"PATH": "/usr/bin:/bin"}, own_group=True, cwd=attempt.folder,
            parent_death=signal.SIGKILL,
        )  # fmt: skip
        started.append(launcher)
        placement = place(made.grid, hosts, 4 // len(hosts))
        return Running(
            made, run, attempt, placement, program=program, launcher=launcher, asked=asked, stop_signal=signal.SIGUSR2
        )

    yield start
    for launcher in started:
        launcher.kill()
        launcher.wait()


def end(run: RunFolder, rank: int, exit_code: int = 0) -> None:
    meaning = Meaning.FAILED if exit_code else Meaning.DONE
    RankEnd(rank, "here", rank, 2.5, exit_code, meaning=meaning).write(run.attempt(1).rank_end(rank))


def there(run: RunFolder, name: str) -> bool:
    return (run.attempt(1).folder / name).exists()


def test_a_launcher_that_ends_leaves_its_code_and_the_records_of_its_ranks(run: RunFolder, watched: Start) -> None:
    for rank in range(4):
        end(run, rank)
    one = watched("exit 3")
    assert one.watch() == 3 and sorted(one.ranks.ends) == [0, 1, 2, 3]
    assert (one.stop, one.hang, one.stayed) == (None, None, [])


@pytest.mark.parametrize(
    ("lost", "exit_code", "waits"),
    [("by the launcher", 9, False), ("by its silence", 9, False), ("", 9, True), ("by the launcher", 0, True)],
)
def test_records_of_ranks_on_a_lost_host_are_not_awaited_unless_all_may_have_ended_well(
    lost: str, exit_code: int, waits: bool, run: RunFolder, watched: Start, clock: Passing
) -> None:
    for rank in (0, 1):
        end(run, rank, exit_code)
    one = watched("exit 1", hosts=("n1", "n2"))
    one.launcher.wait()
    if lost == "by the launcher":
        run.attempt(1).stderr.write_text("srun: error: Node failure on n2\n")
    elif lost:
        one.hang = ended(How.HOST_SILENT, one.placement, hosts=["n2"], silent_s=60.0)
    began_s = clock.now_s
    assert one.watch() == 1 and sorted(one.ranks.ends) == [0, 1]
    assert clock.now_s - began_s == (pytest.approx(running.RECORDED_S, abs=running.SOON_S) if waits else 0.0)


def test_records_of_ranks_on_hosts_that_live_are_awaited_although_another_is_lost(
    run: RunFolder, watched: Start, clock: Passing
) -> None:
    end(run, 0, exit_code=9)
    run.attempt(1).stderr.write_text("srun: error: Node failure on n2\n")
    one = watched("exit 1", hosts=("n1", "n2"))
    one.launcher.wait()
    began_s = clock.now_s
    one.watch()
    assert clock.now_s - began_s >= running.RECORDED_S, "rank 1 of n1 has no record yet"


def test_a_request_to_stop_reaches_the_launcher_once(run: RunFolder, watched: Start) -> None:
    told = f'trap "echo stop >> stops; test $(wc -l < stops) = 2 && exit 1; touch told" USR2; {LOOP}'
    script = told.replace("while :", "until test -e told && sleep 0.1")
    one = watched(script, lambda: STOP if there(run, "ready") else None)
    assert one.watch() == 0 and one.stop == STOP
    assert (run.attempt(1).folder / "stops").read_text() == "stop\n"


def test_a_launcher_that_does_not_stop_is_killed_with_what_it_started(
    run: RunFolder, watched: Start, clock: Passing
) -> None:
    script = f'trap "" USR2 TERM; sleep 1000 & echo $! > child; {LOOP}'
    one = watched(script, lambda: STOP if there(run, "ready") else None, kill_after_s=30.0)
    assert one.watch() is None and one.stayed == [0, 1, 2, 3]
    child = int((run.attempt(1).folder / "child").read_text())
    until(lambda: proc.state_of(child) in ("", "Z"), "what it started to end")


def test_the_others_have_a_moment_to_end_once_a_rank_has_failed(run: RunFolder, watched: Start, clock: Passing) -> None:
    end(run, 1, exit_code=9)
    began_s, one = clock.now_s, watched(ENDLESS)
    assert one.watch() is None and one.stayed == [0, 2, 3]
    assert running.FOLLOW_S < clock.now_s - began_s < 100.0


@pytest.mark.parametrize("steps", [0, 1])
def test_before_the_first_step_of_our_training_that_moment_is_short(
    steps: int, run: RunFolder, watched: Start, clock: Passing
) -> None:
    end(run, 1, exit_code=9)
    for step in range(steps):
        Metrics(run.metrics, 1).write("step", step=step)
    began_s, one = clock.now_s, watched(ENDLESS, program=OURS)
    assert one.watch() is None and one.stayed == [0, 2, 3]
    assert (clock.now_s - began_s < running.FOLLOW_S) == (steps == 0)


def test_a_checkpoint_that_is_being_written_when_a_rank_fails_has_the_time_of_a_stop(
    run: RunFolder, watched: Start, clock: Passing
) -> None:
    end(run, 1, exit_code=9)
    (run.checkpoints / ".tmp-step-00000007-1").mkdir(parents=True)
    began_s, one = clock.now_s, watched(ENDLESS, kill_after_s=20.0)
    assert one.watch() is None
    assert 20.0 < clock.now_s - began_s < 60.0


def test_a_checkpoint_that_is_being_written_in_a_hang_has_the_time_of_a_stop(
    run: RunFolder, watched: Start, clock: Passing
) -> None:
    (run.checkpoints / ".tmp-step-00000007-1").mkdir(parents=True)
    Metrics(run.metrics, 1).write("step", step=7, total_steps=40, loss=1.0)
    one = watched(f"trap '' USR1 USR2; {LOOP}", kill_after_s=20.0)
    ends_s = list[float]()
    one.asked = lambda: ends_s.append(clock.now_s) if one.hang else None
    assert one.watch() is None and one.hang
    assert 20.0 < ends_s[-1] - ends_s[0] < 60.0


def test_only_our_training_is_searched_for_slow_ranks(watched: Start) -> None:
    assert watched("exit 0").slow and not watched("exit 0", command=("true",)).slow


def test_a_launcher_that_stays_although_the_training_is_done_is_ended(
    run: RunFolder, watched: Start, clock: Passing
) -> None:
    write_json(run.attempt(1).done, {"schema": 1, "attempt": 1, "step": 40})
    began_s, one = clock.now_s, watched(ENDLESS, kill_after_s=30.0)
    assert one.watch() is None and one.hang is None
    assert clock.now_s - began_s > 30.0


def test_ranks_that_have_ended_well_cannot_hang_while_their_launcher_stays(
    run: RunFolder, watched: Start, clock: Passing
) -> None:
    for rank in range(4):
        end(run, rank)
    began_s, one = clock.now_s, watched(ENDLESS, kill_after_s=3 * HANG_S, command=("true",))
    assert one.watch() is None and one.hang is None and one.stayed == []
    assert 3 * HANG_S < clock.now_s - began_s < 5 * HANG_S


def test_a_program_that_makes_no_progress_is_asked_where_it_is_and_stopped(
    run: RunFolder, watched: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_watch, "ANSWER_S", 1e4)  # the launcher does both, as soon as it can
    monkeypatch.setattr(running, "FOLLOW_S", 1e4)
    seen = """seen() { for rank in 0 1 2 3; do echo '{"process": "S"}' > ranks/000$rank.seen.json; done; }"""
    one = watched(f'{seen}; trap seen USR1; trap "exit 5" USR2; {LOOP}')
    until(lambda: there(run, "ready"), "the launcher")
    Metrics(run.metrics, 1).write("step", step=7, total_steps=40, loss=1.0)
    assert one.watch() == 5 and one.hang and one.hang.state is State.FAILED
    assert one.hang.reason.startswith("no progress for 2") and " after step 7 " in one.hang.reason
    assert "all ranks are at work or wait for one another" in one.hang.reason


def test_a_program_that_moves_now_and_then_is_left_alone(run: RunFolder, watched: Start, clock: Passing) -> None:
    metrics, began_s, written = Metrics(run.metrics, 1), clock.now_s, list[float]()

    def asked() -> None:
        if clock.now_s - began_s > 0.8 * HANG_S * (len(written) + 1):
            written.append(clock.now_s)
            metrics.write("step", step=len(written), total_steps=40, loss=1.0)
        if len(written) == 4:
            (run.attempt(1).folder / "enough").touch()

    one = watched(f"trap '' USR1; {LOOP.replace('while :', 'until test -e enough')}", asked)
    assert one.watch() == 0 and one.hang is None and clock.now_s - began_s > 3 * HANG_S


def test_a_look_that_takes_long_shortens_no_time_between_the_signals(
    run: RunFolder, watched: Start, clock: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = watched(f'trap "" USR2 TERM; {LOOP}')
    at_s: dict[str, float] = {}
    send, kill = one.launcher.send_signal, running.os.killpg

    def slow(_: float) -> End:
        clock.sleep(100.0)
        return STOP

    def sent(number: signal.Signals) -> None:
        at_s[number.name] = clock.monotonic()
        send(number)

    def killed(group: int, number: signal.Signals) -> None:
        at_s[number.name] = clock.monotonic()
        kill(group, number)
        raise ProcessLookupError  # as if the launcher had ended meanwhile

    monkeypatch.setattr(one.hangs, "look", slow)
    monkeypatch.setattr(one.launcher, "send_signal", sent)
    monkeypatch.setattr(running.os, "killpg", killed)
    until(lambda: there(run, "ready"), "the launcher to be ready")
    assert one.watch() is None
    assert at_s["SIGTERM"] - at_s["SIGUSR2"] >= running.FOLLOW_S, at_s
    assert at_s["SIGKILL"] - at_s["SIGTERM"] >= running.FOLLOW_S, at_s
