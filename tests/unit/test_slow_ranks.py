"""A rank or host that is a fifth slower for fifty steps is named, noise and waiting are not; stacks of ranks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from torusrun.orchestrator.job.hangs.hang import stack
from torusrun.orchestrator.job.hangs.hang_watch import CONFIRMED, SlowWatch
from torusrun.orchestrator.job.load.step_times import FEWEST_REPORTS, FEWEST_STEPS, RecentSteps
from torusrun.orchestrator.job.ranks import rank_program
from torusrun.orchestrator.place.placement.mapping import Grid, place
from torusrun.orchestrator.run.folder.at_work import NodeLoad, RankSteps, Slow, slow_ranks
from torusrun.orchestrator.run.folder.run_folder import Attempt

TELL_S = 2.0


def reported(rank: int, computed_s: Sequence[float], step_s: float = 2.0, steps: int = 10) -> RankSteps:
    """The newest of some reports of a rank, each over `steps` steps in which it computed for so long."""
    recent, newest = RecentSteps(), None
    for number, time_s in enumerate(computed_s, 1):
        newest = recent.add(RankSteps(rank, TELL_S * number, steps * number, step_s, step_s, 1 - time_s / step_s))
    assert newest
    return newest


def of_hosts(times_s: Mapping[str, Sequence[float]], reports: int = 12) -> Slow | None:
    """The slow ranks, if the ranks of each host compute for so long."""
    ranks, found = 0, {}
    for host, there in times_s.items():
        found[host] = [reported(ranks + n, [time_s] * reports) for n, time_s in enumerate(there)]
        ranks += len(there)
    return slow_ranks(found)


def test_fifty_steps_and_some_reports_are_needed() -> None:
    assert reported(0, [1.0] * FEWEST_REPORTS).recent_s is None, "the first report has the start"
    few = reported(0, [1.0] * (FEWEST_REPORTS + 1))
    assert few.recent_s == pytest.approx(1.0) and few.recent_steps == FEWEST_STEPS
    assert reported(0, [1.0] * 20, steps=1).recent_s is None
    assert reported(0, [1.0] * 60, steps=1).recent_steps == FEWEST_STEPS
    assert reported(0, [1.0, *[1.0] * 8, 1.9, 1.9]).recent_s == pytest.approx(1.0), "two reports are too few"
    unknown = RecentSteps()
    assert all(unknown.add(RankSteps(0, n, n, 1.0, 1.0)).recent_s is None for n in range(1, 200)), "as on a GPU"


def test_a_slow_rank_and_a_slow_host_are_named() -> None:
    assert of_hosts({"n1": [1.0, 1.0], "n2": [1.0, 1.19]}) is None
    rank = of_hosts({"n1": [1.0, 1.0], "n2": [1.0, 1.25]})
    assert rank and (rank.ranks, rank.hosts, rank.whole) == ((3,), ("n2",), False)
    assert rank.words == "slow: rank 3 (n2) computes 1.2 times as long as the median over 50 steps; the others wait"
    host = of_hosts({"n1": [1.0, 1.0, 1.1], "n2": [1.5, 1.6], "n3": [1.0]})
    assert host and host.words.startswith("slow: n2 (ranks 4, 3) computes 1.6 times as long")
    two = of_hosts({"n1": [1.0], "n2": [1.3]})
    assert two and two.ranks == (1,)
    assert of_hosts({"n1": [1.0]}) is None and of_hosts({}) is None


def test_noise_names_nobody(chance: random.Random) -> None:
    """Ten percent in each report, of 16 ranks over 4 hours."""
    recent = [RecentSteps() for _ in range(16)]
    for number in range(1, 7200):
        reports = [
            one.add(RankSteps(rank, 1.0, 20 * number, 2.0, 2.0, 1 - chance.gauss(0.5, 0.025)))
            for rank, one in enumerate(recent)
        ]
        assert slow_ranks({"n1": reports[:8], "n2": reports[8:]}) is None


def test_a_slow_rank_is_recorded_once_two_looks_agree_and_forgotten_again(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path)
    attempt.ranks.mkdir()
    watch = SlowWatch(attempt, place(Grid((4,)), ["n1", "n2"], 2))

    def look(second: int, last_s: float) -> Slow | None:
        for first, times_s in ((0, (1.0, 1.0)), (2, (1.0, last_s))):
            ranks = tuple(reported(first + n, [time_s] * 12) for n, time_s in enumerate(times_s))
            NodeLoad(1000.0, 5.0, 4, ranks=ranks).write(attempt.node_load(first))
        watch.look(float(second))
        return Slow.read(attempt.slow)

    assert look(10, 1.5) is None and look(12, 1.5) is None
    found = look(20, 1.5)
    assert CONFIRMED == 2 and found and found.ranks == (3,)
    assert look(30, 1.0) and look(40, 1.0) is None
    attempt.slow.write_text('{"ranks": ["x"]}')
    assert Slow.read(attempt.slow) is None


# Stacks of a program that writes none itself.


# Of py-spy 0.4.3, with the home of another user.
DUMP = """Process 598: python mine.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 598 (idle): "MainThread"
    Condition.wait (/usr/lib/python3.11/threading.py:320)
    Event.wait (/usr/lib/python3.11/threading.py:622)
    train (/home/me/mine.py:11)
    <module> (/home/me/mine.py:15)
Thread 600 (active+gil): "Thread-1 (read)"
    read (/home/me/mine.py:7)
    Thread.run (/usr/lib/python3.11/threading.py:975)
    Thread._bootstrap_inner (/usr/lib/python3.11/threading.py:1038)
    Thread._bootstrap (/usr/lib/python3.11/threading.py:995)
"""


def test_the_main_thread_of_py_spys_output_is_read_as_faulthandlers() -> None:
    text = rank_program.as_faulthandler(DUMP, 598)
    assert text.startswith('Thread 0x0000000000000258 (most recent call first):\n  File "/home/me/mine.py", line 7 in')
    assert stack(text.splitlines()) == [
        "/usr/lib/python3.11/threading.py:320 Condition.wait", "/usr/lib/python3.11/threading.py:622 Event.wait",
        "/home/me/mine.py:11 train", "/home/me/mine.py:15 <module>",
    ]  # fmt: skip
    assert rank_program.as_faulthandler("Error: Failed to open process\n", 1) == ""


@pytest.mark.parametrize(("does", "frames"), [("exec cat dump", 4), ("exec sleep 1000", 0), ("exit 1", 0)])
def test_py_spy_is_used_if_it_is_there_and_ended_if_it_hangs(
    does: str, frames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dump").write_text(DUMP)
    (tmp_path / "py-spy").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin; cd {tmp_path}; {does}\n")
    (tmp_path / "py-spy").chmod(0o755)
    log = tmp_path / "log"
    log.write_text("step=3\n")
    monkeypatch.setenv("PATH", "/nowhere")
    assert not rank_program.by_py_spy(598, log)
    assert log.read_text() == "step=3\n"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rank_program, "PY_SPY_S", 0.5 if "sleep" in does else 300.0)
    assert rank_program.by_py_spy(598, log) is (frames > 0)
    assert len(stack(log.read_text().splitlines())) == frames
