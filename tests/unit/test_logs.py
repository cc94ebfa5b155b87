"""Logs in bounded blocks: what grows, what is cut short, what is no log at all, and what a stranger wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.runs.folder import RunFolder
from orchestrator.runs.records import End
from orchestrator.states import State
from orchestrator.watch.logs import BLOCK_BYTES, Source, lines
from tests.unit.run_folders import make, write_specs


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))


def told(run: RunFolder, rank: int | None = None) -> list[str]:
    return list(lines(run, attempt=None, rank=rank, until_over=False))


def test_lines_come_with_their_origin_and_the_last_one_without_an_end_too(run: RunFolder) -> None:
    with open(run.attempt(1).rank_log(3), "a") as log:
        log.write("cut off here")
    assert told(run)[:3] == ["job | a line of the job", "0 | a line of rank 0", "0 | another"]
    assert told(run)[-1] == "3 | cut off here"
    assert told(run, rank=3) == ["a line of rank 3", "another", "cut off here"]


def test_what_is_no_regular_file_is_told_of_once_and_hides_no_other(run: RunFolder) -> None:
    attempt = run.attempt(1)
    for path, plant in ((attempt.stdout, os.mkfifo), (attempt.stderr, os.mkdir)):
        path.unlink()
        plant(path)
    attempt.rank_log(0).unlink()
    attempt.rank_log(0).symlink_to("/dev/zero")
    found = told(run)
    assert [line.partition(" cannot be read: ")[2] for line in found[:3]] == [
        "this is no regular file",
        "this is no regular file",
        "this is a symbolic link, and is not followed",
    ]
    assert "1 | a line of rank 1" in found


def test_a_log_that_is_cut_short_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    source = Source("", path)
    path.write_text("one\ntwo\nthr")
    assert list(source.new(whole=True)) == ["one", "two"]
    path.write_text("four\n")
    assert list(source.new(whole=True)) == ["four"]
    with open(path, "a") as log:
        log.write("five\n")
    assert list(source.new(whole=True)) == ["five"]


def test_a_line_longer_than_a_block_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (2 * BLOCK_BYTES + 5) + b"\nend\n")
    found = list(Source("", path).new(whole=True))
    assert [len(line) for line in found] == [BLOCK_BYTES, BLOCK_BYTES, 5, 3]


def test_what_was_never_written_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 1 << 40)
    with open(path, "a") as log:
        log.write("the end\n")
    (line,) = Source("", path).new(whole=True)
    assert line.endswith("the end") and len(line) < 5000


def test_ones_own_logs_are_shown_as_they_are_and_a_strangers_are_not(run: RunFolder) -> None:
    run.attempt(1).stdout.write_text("\x1b[31mred\x1b[0m\n")
    assert told(run)[0] == "job | \x1b[31mred\x1b[0m"
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(run.folder, 12345, 12345)
    assert told(run)[0] == r"job | \x1b[31mred\x1b[0m"


def test_an_attempt_or_a_rank_that_there_is_not(run: RunFolder) -> None:
    with pytest.raises(UserError, match=r"has no attempt 2 \(it has: 1\)"):
        list(lines(run, attempt=2, rank=None, until_over=False))
    for rank in (4, -1):
        with pytest.raises(UserError, match=f"has no rank {rank}: its ranks are 0 to 3"):
            told(run, rank)


def test_following_a_run_that_is_over_ends(run: RunFolder) -> None:
    assert list(lines(run, attempt=None, rank=None, until_over=True)) == told(run)
