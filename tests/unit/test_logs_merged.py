"""`logs --all` by time, over ranks and attempts, and the times of lines; --since, --times, --grep, --errors."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import ledger, log_times
from torusrun.orchestrator.run.folder.events import Ended, Submitted
from torusrun.orchestrator.run.folder.log_times import LogTimes, Recorder, index_of
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.show.logs.files import FollowedFile, LogLine
from torusrun.orchestrator.show.logs.reading import Filter, Reading, in_order

Said = pytest.CaptureFixture[str]
NOW_S = 1_700_000_000.0


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.FAILED, "rank 1 ended with exit code 1"))


def write(log: Path, *lines: tuple[float, str]) -> None:
    """A log and its index: (seconds after NOW_S, line)."""
    log.write_text("".join(f"{text}\n" for _, text in lines))
    size, records = 0, []
    for after_s, text in lines:
        size += len(text) + 1
        records.append(f"{NOW_S + after_s:.3f} {size}\n")
    index_of(log).write_text("".join(records))
    os.utime(log, (NOW_S + lines[-1][0],) * 2)


def shown(capsys: Said, *argv: str) -> list[str]:
    assert main(["logs", *argv]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def timed(run: RunFolder) -> RunFolder:
    attempt = run.attempt(1)
    write(attempt.stdout, (0, "begun"), (9, "ended"))
    for rank in range(4):
        write(attempt.rank_log(rank), (1 + rank / 10, f"first {rank}"), (2 - rank / 10, f"second {rank}"))
    return run


@pytest.fixture
def resumed(timed: RunFolder) -> RunFolder:
    """The same run with a second attempt, which is over too."""
    second = timed.attempt(2)
    second.logs.mkdir(parents=True)
    second.ranks.mkdir()
    write(second.rank_log(0), (20, "again 0"))
    End(State.COMPLETED, "well").write(second.end)
    ledger.append(timed.ledger, Submitted(2, job="999999999.2", scheduler="local"))
    ledger.append(timed.ledger, Ended(2, State.COMPLETED, "well"))
    return timed


def test_the_lines_of_the_job_and_of_all_ranks_come_by_time(timed: RunFolder, capsys: Said) -> None:
    assert shown(capsys, timed.run_id, "--all") == [
        "job | begun",
        *(f"{rank} | first {rank}" for rank in range(4)),
        *(f"{rank} | second {rank}" for rank in (3, 2, 1, 0)),
        "job | ended",
    ]


def test_logs_without_times_come_first_by_file(timed: RunFolder, capsys: Said) -> None:
    for rank in (1, 2):
        index_of(timed.attempt(1).rank_log(rank)).unlink()
    lines = shown(capsys, timed.run_id, "--all")
    assert lines[:5] == ["1 | first 1", "1 | second 1", "2 | first 2", "2 | second 2", "job | begun"]


def test_the_newest_attempt_unless_all_are_asked_for(resumed: RunFolder, capsys: Said) -> None:
    assert shown(capsys, resumed.run_id, "--all") == ["0 | again 0"]
    lines = shown(capsys, resumed.run_id, "--all", "--attempt", "all")
    assert (lines[0], lines[-2], lines[-1]) == ("#1 job | begun", "#1 job | ended", "#2 0 | again 0")
    assert shown(capsys, resumed.run_id, "--attempt", "all") == ["#1 first 0", "#1 second 0", "#2 again 0"]
    assert shown(capsys, resumed.run_id, "--all", "--attempt", "1")[0] == "job | begun"


def test_who_follows_loses_no_line_of_an_attempt_that_the_next_one_replaces(
    timed: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks(run: RunFolder):  # type: ignore[no-untyped-def]
        yield
        with open(run.attempt(1).rank_log(0), "a") as log:
            log.write("the last words")
        run.attempt(2).logs.mkdir(parents=True)
        run.attempt(2).rank_log(0).write_text("again\n")
        ledger.append(run.ledger, Submitted(2, job="999999999.2", scheduler="local"))
        yield

    monkeypatch.setattr("torusrun.orchestrator.show.logs.reading.follow", looks)
    lines = [str(line) for line in Reading(timed, Filter(0)).lines(until_over=True)]
    assert lines == ["first 0", "second 0", "#2 again", "#1 the last words"]


def iso(after_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(NOW_S + after_s))


def test_only_what_was_written_since(resumed: RunFolder, capsys: Said) -> None:
    chosen = (resumed.run_id, "--all", "--attempt", "all", "--since", iso(2))
    assert shown(capsys, *chosen) == ["#1 0 | second 0", "#1 job | ended", "#2 0 | again 0"]
    assert shown(capsys, *chosen, "--grep", "0$") == ["#1 0 | second 0", "#2 0 | again 0"]
    assert main(["logs", resumed.run_id, "--all", "--since", "10s"]) == 0
    assert capsys.readouterr() == ("", "torusrun: no line matches\n")


def test_lines_without_times_are_not_ruled_out_by_a_time_but_by_that_of_their_file(
    timed: RunFolder, capsys: Said
) -> None:
    log = timed.attempt(1).rank_log(1)
    index_of(log).unlink()
    os.utime(log, (NOW_S + 5,) * 2)
    assert main(["logs", timed.run_id, "--rank", "1", "--since", iso(4)]) == 0
    said = capsys.readouterr()
    assert said.out == "first 1\nsecond 1\n"
    assert said.err == "torusrun: lines above without a time, which may be older: 2\n"
    assert shown(capsys, timed.run_id, "--rank", "1", "--since", iso(6)) == []


def test_the_time_of_every_line(timed: RunFolder, capsys: Said) -> None:
    index_of(timed.attempt(1).rank_log(3)).unlink()
    lines = shown(capsys, timed.run_id, "--all", "--times")
    assert lines[0] == f"{'-' * 19} 3 | first 3" and lines[2] == f"{iso(0)} job | begun"


def test_errors_of_all_attempts_with_their_times(resumed: RunFolder, capsys: Said) -> None:
    crash = ("Traceback (most recent call last):", "ValueError: it broke")
    write(resumed.attempt(1).rank_log(2), (3, "fine"), (4, crash[0]), (4, crash[1]))
    write(resumed.attempt(2).rank_log(0), (21, crash[0]), (22, crash[1]))
    RankEnd(2, "node1", 2, NOW_S + 5, exit_code=1).write(resumed.attempt(1).rank_end(2))
    chosen = (resumed.run_id, "--errors", "--attempt", "all")
    no_time = "-" * 19
    assert shown(capsys, *chosen, "--times") == [
        f"{no_time} #1 2 | {crash[0]}",
        f"{no_time} #1 2 | {crash[1]}",
        f"{iso(5)} #1 rank 2 (node1, local rank 2) ended with exit code 1",
        f"{no_time} #2 0 | {crash[0]}",
        f"{no_time} #2 0 | {crash[1]}",
    ]
    assert shown(capsys, *chosen, "--grep", "Value") == [f"#1 2 | {crash[1]}", f"#2 0 | {crash[1]}"]


STREAMS = st.lists(st.lists(st.tuples(st.none() | st.integers(0, 20), st.integers(0, 99)), max_size=20), max_size=6)


@given(STREAMS)
def test_merging_keeps_every_line_and_the_order_of_each_file(streams: list[list[tuple[int | None, int]]]) -> None:
    files = [
        [LogLine(time_s, str(n), f"{at} {word}") for at, (time_s, word) in enumerate(lines)]
        for n, lines in enumerate(streams)
    ]
    merged = list(in_order([iter(lines) for lines in files]))
    assert [[line for line in merged if line.origin == str(n)] for n in range(len(files))] == files


@given(st.lists(st.lists(st.integers(0, 20).map(float)).map(sorted), max_size=6))
def test_merging_what_has_times_sorts_by_time_and_then_by_file(times: list[list[float]]) -> None:
    files = [[LogLine(time_s, str(n), "") for time_s in of_file] for n, of_file in enumerate(times)]
    assert list(in_order(files)) == sorted((line for lines in files for line in lines), key=lambda line: line[:2])


# The times of logs: what a wrapper records while a log grows, and by when a line was written.


LATE_S = 1e9  # when a log was last written, where its index does not say more


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-0000.log"


def index(log: Path, records: list[tuple[float, int]]) -> None:
    index_of(log).write_text("".join(f"{time_s:.3f} {size}\n" for time_s, size in records))


def recorded(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in index_of(log).read_text().splitlines()]


def times_of(log: Path, block_bytes: int = 1 << 20) -> list[tuple[float | None, str]]:
    os.utime(log, (LATE_S, LATE_S))
    return [(line.time_s, line.text) for line in FollowedFile("", log, block_bytes).new(whole=False)]


def test_a_recorder_notes_every_size_and_leaves_the_log_alone(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_times, "WRITE_S", 3600.0)
    with open(log, "ab", buffering=0) as output:
        recorder = Recorder(output.fileno(), index_of(log))
        for text in (b"one\n", b"", b"two\nthr"):
            output.write(text)
            recorder.look()
        assert recorded(log) == [0], "what is seen is written together"
        recorder.look(last=True)
    assert recorded(log) == [0, 4, 11] and log.read_bytes() == b"one\ntwo\nthr"


def test_a_recorder_continues_where_an_earlier_one_stopped(log: Path) -> None:
    for text in (b"one\n", b"two\n"):
        with open(log, "ab", buffering=0) as output:
            recorder = Recorder(output.fileno(), index_of(log))
            output.write(text)
            recorder.look(last=True)
    assert recorded(log) == [0, 4, 4, 8]


def test_a_log_that_is_cut_short_gets_a_new_index(log: Path) -> None:
    with open(log, "ab", buffering=0) as output:
        recorder = Recorder(output.fileno(), index_of(log))
        output.write(b"a long line\n")
        recorder.look(last=True)
        os.truncate(log, 0)
        output.write(b"short\n")
        recorder.look(last=True)
    assert recorded(log) == [6]


def test_what_is_no_regular_file_has_no_times_and_a_closed_stream_is_no_error(log: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"text")
    Recorder(writing, index_of(log)).look(last=True)
    os.close(reading)
    os.close(writing)
    Recorder(writing, index_of(log)).look(last=True)
    assert not index_of(log).exists()


def test_an_index_that_cannot_be_written_costs_the_times_alone(log: Path) -> None:
    index_of(log).symlink_to("/dev/full")
    with open(log, "ab", buffering=0) as output:
        recorder = Recorder(output.fileno(), index_of(log))
        output.write(b"one\n")
        recorder.look(last=True)
        index_of(log).unlink()
        output.write(b"two\n")
        recorder.look(last=True)
    assert recorded(log) == [8] and log.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("damage", ["\0" * 300, "no number\n", "nan 5\n", "1e400 5\n", "7.0 -5\n", "1.0", ""])
def test_a_damaged_index_is_passed_over(log: Path, damage: str) -> None:
    log.write_text("one\n")
    index_of(log).write_text(f"10.000 0\n{damage}\n11.000 4\n")
    assert times_of(log) == [(11.0, "one")]


def test_an_index_that_grows_is_read_on(log: Path) -> None:
    log.write_text("one\n")
    index(log, [(10.0, 4)])
    source = FollowedFile("", log)
    assert [line.time_s for line in source.new(whole=True)] == [10.0]
    with open(log, "a") as output, open(index_of(log), "a") as more:
        output.write("two\n")
        more.write("11.0")
    os.utime(log, (LATE_S, LATE_S))
    assert [line.time_s for line in source.new(whole=True)] == [LATE_S], "its record is still being written"
    with open(log, "a") as output, open(index_of(log), "a") as more:
        output.write("three\n")
        more.write("00 8\n12.000 14\n")
    assert [line.time_s for line in source.new(whole=True)] == [12.0]


LINES = st.lists(st.text("ab", max_size=12), max_size=30)
SIZES = st.lists(st.tuples(st.floats(0, 1000).map(lambda x: round(x, 3)), st.integers(0, 400)), max_size=30)


@given(LINES, SIZES, st.integers(1, 64))
def test_times_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], sizes: list[tuple[float, int]], block: int
) -> None:
    log = tmp_path_factory.mktemp("times") / "log"
    log.write_text("".join(f"{line}\n" for line in lines))
    index(log, sizes)
    growing: list[tuple[float, int]] = []  # as the index is understood: neither goes back
    for time_s, size in sizes:
        if size > (growing[-1][1] if growing else -1):
            growing.append((max(time_s, growing[-1][0] if growing else time_s), size))
    wanted, end = [], 0
    for line in lines:
        end += len(line) + 1
        wanted.append((next((time_s for time_s, size in growing if size >= end), LATE_S if growing else None), line))
    assert times_of(log, block) == wanted


def test_asking_for_a_time_reads_no_more_of_the_index_than_it_needs(log: Path) -> None:
    index(log, [(float(n), n) for n in range(100_000)])
    times = LogTimes(log)
    assert times.when(10, LATE_S) == (10.0, 10)
    os.truncate(index_of(log), 100_000)
    assert times.when(99_999, LATE_S) == (LATE_S, sys.maxsize), "what is cut off now had not been read"
