"""The times of logs: what a wrapper records while a log grows, and by when a line was written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.run.folder import log_times
from torusrun.orchestrator.run.folder.log_times import LogTimes, Recorder, index_of
from torusrun.orchestrator.show.logs.files import FollowedFile

LATE_S = 1e9  # when a log was last written, where its index does not say more


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-0000.log"


def index(log: Path, records: list[tuple[float, int]]) -> None:
    index_of(log).write_text("".join(f"{time_s:.3f} {size}\n" for time_s, size in records))


def recorded(log: Path) -> list[int]:
    return [int(line.split()[1]) for line in index_of(log).read_text().splitlines()]


def timed(log: Path, block_bytes: int = 1 << 20) -> list[tuple[float | None, str]]:
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


def test_a_line_was_written_by_the_first_time_at_which_its_end_was_there(log: Path) -> None:
    log.write_text("one\ntwo\nthree\nfour\n")
    index(log, [(10.0, 0), (11.0, 4), (12.0, 10), (13.0, 14)])
    assert timed(log) == [(11.0, "one"), (12.0, "two"), (13.0, "three"), (LATE_S, "four")]


def test_without_an_index_no_time_is_known(log: Path) -> None:
    log.write_text("one\ntwo\n")
    assert timed(log) == [(None, "one"), (None, "two")]


@pytest.mark.parametrize("damage", ["\0" * 300, "no number\n", "nan 5\n", "1e400 5\n", "7.0 -5\n", "1.0", ""])
def test_a_damaged_index_is_passed_over(log: Path, damage: str) -> None:
    log.write_text("one\n")
    index_of(log).write_text(f"10.000 0\n{damage}\n11.000 4\n")
    assert timed(log) == [(11.0, "one")]


def test_a_clock_that_is_set_back_turns_no_line_around(log: Path) -> None:
    log.write_text("one\ntwo\n")
    index(log, [(100.0, 4), (50.0, 8)])
    assert timed(log) == [(100.0, "one"), (100.0, "two")]


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
    assert timed(log, block) == wanted


def test_asking_for_a_time_reads_no_more_of_the_index_than_it_needs(log: Path) -> None:
    index(log, [(float(n), n) for n in range(100_000)])
    times = LogTimes(log)
    assert times.when(10, LATE_S) == (10.0, 10)
    os.truncate(index_of(log), 100_000)
    assert times.when(99_999, LATE_S) == (LATE_S, sys.maxsize), "what is cut off now had not been read"
