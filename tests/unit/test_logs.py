"""Logs: which of them are shown, why there are none, and files that grow, are cut short or are no logs at all."""

from __future__ import annotations

import contextlib
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from tests import machine
from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import prints
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Submitted
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.show.logs.files import BLOCK_BYTES, FollowedFile, newest_line, tail
from torusrun.orchestrator.show.logs.reading import Filter, Reading

Said = pytest.CaptureFixture[str]


@pytest.fixture
def failed(home: Path) -> RunFolder:
    run = make(write_specs(home), End(State.FAILED, "rank 1 ended with exit code 1"))
    for rank in range(4):
        run.attempt(1).rank_log(rank).write_text("")
    return run


def told(run: RunFolder, rank: int | None = None) -> list[str]:
    return list(map(str, Reading(run, Filter(rank)).lines()))


def texts(source: FollowedFile) -> list[str]:
    return [line.text for line in source.new(whole=True)]


def test_rank_0_is_shown_as_it_wrote(run: RunFolder, capsys: Said) -> None:
    assert main(["logs", run.run_id]) == 0
    assert capsys.readouterr() == ("a line of rank 0\nanother\n", "")
    assert prints(capsys, "logs", run.run_id, "--rank", "3") == "a line of rank 3\nanother\n"


def test_all_lines_come_with_their_origin_and_the_last_one_without_an_end_too(run: RunFolder) -> None:
    with open(run.attempt(1).rank_log(3), "a") as log:
        log.write("cut off here")
    assert told(run)[:3] == ["job | a line of the job", "0 | a line of rank 0", "0 | another"]
    assert told(run)[-1] == "3 | cut off here"
    assert told(run, rank=3) == ["a line of rank 3", "another", "cut off here"]


def test_only_lines_that_match(run: RunFolder, capsys: Said) -> None:
    assert main(["logs", run.run_id, "--all", "--grep", "^a line of rank [13]"]) == 0
    assert capsys.readouterr().out == "1 | a line of rank 1\n3 | a line of rank 3\n"
    assert main(["logs", run.run_id, "--grep", "nothing like it"]) == 0
    assert capsys.readouterr() == ("", "torusrun: no line matches\n")
    assert main(["logs", run.run_id, "--grep", "("]) == 2
    assert "--grep '(': this is not a regular expression: missing )" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-n", "--tail"])
def test_the_last_lines(option: str, run: RunFolder, capsys: Said) -> None:
    assert prints(capsys, "logs", run.run_id, "--rank", "3", option, "1") == "another\n"
    main(["logs", run.run_id, "--all", option, "1", "--grep", "rank [012]"])
    assert capsys.readouterr().out == "2 | a line of rank 2\n"
    main(["logs", run.run_id, "--all", option, "2"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    main(["logs", run.run_id, option, "0", "--follow"])
    assert capsys.readouterr().out == ""
    assert main(["logs", run.run_id, option, "-1"]) == 2


@pytest.mark.parametrize("verb", [["logs", "-n", "3"], ["logs", "--errors"], ["explain"]])
def test_of_a_log_of_a_gigabyte_the_end_is_read(verb: list[str], failed: RunFolder, capsys: Said) -> None:
    with failed.attempt(1).rank_log(0).open("wb") as log:
        log.truncate(1 << 30)
        log.seek(1 << 30)
        log.writelines(b"\nstep %d of 10,000,000 with loss 0.31" % step for step in range(60_000))
        log.write(b"\nTraceback (most recent call last):\n  File 'a.py'\nKeyError: 7\n")
    RankEnd(0, "node1", 0, 9.0, exit_code=1).write(failed.attempt(1).rank_end(0))
    tracemalloc.start()
    began_s = time.thread_time()
    assert main([verb[0], failed.run_id, *verb[1:]]) == 0
    took_s, (_, most_bytes) = time.thread_time() - began_s, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "KeyError: 7" in capsys.readouterr().out
    assert took_s < 10.0 and most_bytes < 1 << 27, (took_s, most_bytes)


def test_an_earlier_attempt(run: RunFolder, capsys: Said) -> None:
    run.attempt(2).logs.mkdir(parents=True)
    run.attempt(2).rank_log(0).write_text("the second attempt\n")
    End(State.COMPLETED, "well").write(run.attempt(2).end)
    ledger.append(run.ledger, Submitted(2, job="999999999.2", scheduler="local"))
    assert told(run, 0) == ["the second attempt"]
    main(["logs", run.run_id, "--attempt", "1"])
    assert capsys.readouterr().out == "a line of rank 0\nanother\n"
    run.attempt(1).rank_log(0).write_text("")
    main(["logs", run.run_id, "--attempt", "1"])
    assert capsys.readouterr().err == f"torusrun: rank 0 wrote nothing; `torusrun watch {run.run_id}` shows its steps\n"


def test_a_rank_that_wrote_nothing_and_trained_well(run: RunFolder, capsys: Said) -> None:
    run.attempt(1).rank_log(0).write_text("")
    assert main(["logs", run.run_id, "--follow"]) == 0
    shown = f"torusrun: rank 0 wrote nothing; `torusrun watch {run.run_id}` shows its steps\n"
    assert capsys.readouterr() == ("", shown)
    run.metrics.unlink()
    main(["logs", run.run_id])
    assert capsys.readouterr() == ("", "torusrun: rank 0 wrote nothing\n")


def test_a_rank_that_wrote_nothing_and_an_attempt_that_failed(failed: RunFolder, capsys: Said) -> None:
    failed.attempt(1).stderr.write_text("".join(f"line {n} of the job\n" for n in range(100)))
    assert main(["logs", failed.run_id]) == 0
    said = capsys.readouterr()
    why = "rank 0 wrote nothing; attempt 1 is FAILED, rank 1 ended with exit code 1; the end of the job's stderr:"
    assert said.err == f"torusrun: {why}\n"
    assert said.out.splitlines() == [f"line {n} of the job" for n in range(80, 100)]
    failed.attempt(1).stderr.write_text("")
    main(["logs", failed.run_id])
    said = capsys.readouterr()
    assert said.err.endswith("; the end of the job's stdout:\n") and said.out == "a line of the job\n"
    failed.attempt(1).stdout.unlink()
    main(["logs", failed.run_id])
    assert capsys.readouterr().err.endswith("; its job wrote nothing either\n")


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (Status(State.PENDING, "it waits for free nodes"), "rank 0 has not begun: attempt 1 is PENDING, it waits for"),
        (Status(State.RUNNING), "rank 0 has written nothing yet; `torusrun watch"),
    ],
)
def test_a_rank_that_has_not_written_yet(
    status: Status, says: str, failed: RunFolder, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed.attempt(1).end.unlink()
    whole = failed.ledger.read_text().splitlines(keepends=True)
    failed.ledger.write_text("".join(whole[:-1]))
    monkeypatch.setattr(Client, "poll", lambda client, jobs: dict.fromkeys(jobs, status))
    assert main(["logs", failed.run_id]) == 0
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"torusrun: {says}")


def test_a_log_that_is_no_regular_file_is_reported_once_and_hides_no_other(run: RunFolder) -> None:
    attempt = run.attempt(1)
    for path, plant in ((attempt.stdout, os.mkfifo), (attempt.stderr, os.mkdir)):
        path.unlink()
        plant(path)
    attempt.rank_log(0).unlink()
    attempt.rank_log(0).symlink_to("/dev/zero")
    found = told(run)
    assert [line.partition(" cannot be read: ")[2] for line in found[:3]] == [
        "this is not a regular file",
        "this is not a regular file",
        "this is a symbolic link, and is not followed",
    ]
    assert "1 | a line of rank 1" in found


def test_a_log_that_is_cut_short_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    source = FollowedFile("", path)
    path.write_text("one\ntwo\nthr")
    assert texts(source) == ["one", "two"]
    path.write_text("four\n")
    assert texts(source) == ["four"]
    with open(path, "a") as log:
        log.write("five\n")
    assert texts(source) == ["five"]


def test_a_log_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    source = FollowedFile("", path)
    path.write_text("one\n")
    assert texts(source) == ["one"]
    (tmp_path / "new").write_text("two\nthree\n")
    (tmp_path / "new").rename(path)
    assert texts(source) == ["two", "three"]


def test_a_line_ends_with_a_line_break_alone_or_at_a_block(tmp_path: Path) -> None:
    """And of a progress bar, drawn over and over in one line, the newest state is shown, as a terminal would."""
    path = tmp_path / "log"
    path.write_bytes("a\x0bb\x0cc\x1cd\u2028e\n\n  0%|  |\r 50%|# |\r100%|##|\n windows\r\n\r\n1\r2\r".encode())
    found = [line.text for line in FollowedFile("", path).new(whole=False)]
    assert found == ["a\x0bb\x0cc\x1cd\u2028e", "", "100%|##|", " windows", "", "2"]
    path = tmp_path / "log"
    path.write_bytes(b"x" * (2 * BLOCK_BYTES + 5) + b"\nend\n")
    found = texts(FollowedFile("", path))
    assert [len(line) for line in found] == [BLOCK_BYTES, BLOCK_BYTES, 5, 3]


def test_the_holes_of_a_sparse_log_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, 1 << 40)
    with open(path, "a") as log:
        log.write("the end\n")
    (line,) = texts(FollowedFile("", path))
    assert line.endswith("the end") and len(line) < 5000


def test_ones_own_logs_are_shown_as_they_are_and_a_strangers_are_not(run: RunFolder) -> None:
    run.attempt(1).stdout.write_text("\x1b[31mred\x1b[0m\n")
    assert told(run)[0] == "job | \x1b[31mred\x1b[0m"
    if why := machine.why_not("users"):
        pytest.skip(why)
    os.chown(run.folder, 12345, 12345)
    assert told(run)[0] == r"job | \x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("options", "into", "shown"),
    [
        ([], "pipe", "a\tlöss\u3000\\x1b]0;owned\\x07 \\x9b2J\\u202e"),
        (["--raw"], "pipe", "a\tlöss\u3000\x1b]0;owned\x07 \x9b2J\u202e"),
        ([], "file", "a\tlöss\u3000\x1b]0;owned\x07 \x9b2J\u202e"),
        (["--no-raw"], "file", "a\tlöss\u3000\\x1b]0;owned\\x07 \\x9b2J\\u202e"),
    ],
    ids=["a pipe", "a pipe, raw", "a file", "a file, not raw"],
)
def test_control_characters_reach_a_file_and_no_terminal(
    run: RunFolder, tmp_path: Path, options: list[str], into: str, shown: str
) -> None:
    run.attempt(1).rank_log(0).write_text("a\tlöss\u3000\x1b]0;owned\x07 \x9b2J\u202e\n")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with open(tmp_path / into, "w", encoding="utf-8") as output, contextlib.redirect_stdout(output):
        assert main(["logs", f"{run.folder}/", *options]) == 0
    wrote = os.read(reader, 1000) if into == "pipe" else (tmp_path / into).read_bytes()
    os.close(reader)
    assert wrote.decode() == f"{shown}\n"


def test_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert newest_line(path) == "" and tail(path, 3) == []
    path.write_bytes(b"one\ntwo\nthree\n\n  \n")
    assert newest_line(path) == "three" and tail(path, 2) == ["", "  "]
    path.write_bytes(b"epoch 1\n 10%|#   \r 20%|##  \x1b[A")
    assert newest_line(path) == r"20%|##  \x1b[A"
    path.write_bytes(b"x" * 1_000_000)
    assert newest_line(path) == "x" * 4096
