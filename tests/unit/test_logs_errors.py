"""Tracebacks in logs, and `logs --errors`: the last error of each rank once, and the ranks that ended badly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.log_errors.tracebacks import MOST_BLOCKS, MOST_LINES, Tracebacks
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder

CHAINED = """
def inner(): raise KeyError("a")
def outer():
    try: inner()
    except KeyError as error: raise ValueError("b") from error
try: outer()
except ValueError: {}["c"]
"""


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.FAILED, "rank 1 ended with exit code 1"))


def tracebacks(lines: list[str]) -> list[list[str]]:
    reader: Tracebacks[str] = Tracebacks()
    for line in lines:
        reader.add(line, line)
    return [block.rows for block in reader.taken(final=True)]


def crash(program: str) -> list[str]:
    """What Python really prints when a program crashes."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr.splitlines()


def test_a_traceback_of_exceptions_that_caused_each_other_is_one_block() -> None:
    shown = crash(CHAINED)
    assert shown[-1].startswith("KeyError") and sum("Traceback" in line for line in shown) == 3
    (block,) = tracebacks(["before", "  indented", *shown, "after", "  indented"])
    assert block == [line for line in shown if line]


def test_two_tracebacks_are_two_blocks_and_prefixes_do_not_hide_them() -> None:
    first, second = crash("1 / 0"), crash("raise ValueError('x')")
    blocks = tracebacks([*(f"[rank0]: {line}" for line in first), "step 3", *second])
    assert blocks == [[f"[rank0]: {line}" for line in first], second]


def test_the_blocks_of_a_file_are_bounded() -> None:
    lines = ["Traceback (most recent call last):", *["  File x"] * (2 * MOST_LINES), "ValueError"] * (MOST_BLOCKS + 5)
    blocks = tracebacks(lines)
    assert len(blocks) == MOST_BLOCKS and {len(block) for block in blocks} == {MOST_LINES}


def test_errors_are_shown_once_with_the_ranks_that_failed(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    attempt, shown = run.attempt(1), crash("1 / 0")
    for rank in (1, 2):
        attempt.rank_log(rank).write_text("\n".join(["epoch 1", *shown]) + "\n")
    attempt.rank_log(3).write_text("out of memory\n")
    RankEnd(1, "node1", 1, 10.0, exit_code=1).write(attempt.rank_end(1))
    RankEnd(2, "node1", 2, 11.0, exit_code=1).write(attempt.rank_end(2))
    RankEnd(3, "node1", 3, 9.0, signal=9).write(attempt.rank_end(3))
    assert main(["logs", run.run_id, "--errors"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 | out of memory",
        *(f"1 | {line}" for line in shown),
        "(the error of rank 1 is also that of rank 2)",
        "rank 3 (node1, local rank 3) was killed by SIGKILL",
        "rank 1 (node1, local rank 1) ended with exit code 1",
        "rank 2 (node1, local rank 2) ended with exit code 1",
    ]
    main(["logs", run.run_id, "--errors", "--grep", "ZeroDivision"])
    assert capsys.readouterr().out == "1 | ZeroDivisionError: division by zero\n"


def test_the_jobs_output_is_shown_where_no_rank_says_why(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.attempt(1).stderr.write_text("mpirun: not found\n")
    assert main(["logs", run.run_id, "--errors"]) == 0
    said = capsys.readouterr()
    assert said.out == "mpirun: not found\n"
    assert said.err.startswith("torusrun: no error, and no rank that ended badly; attempt 1 is FAILED, rank 1 ended")


def test_a_run_without_errors(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(write_specs(home), End(State.COMPLETED, "well"))
    assert main(["logs", run.run_id, "--errors"]) == 0
    assert capsys.readouterr() == ("", "torusrun: no error, and no rank that ended badly\n")
    assert main(["logs", run.run_id, "--errors", "--follow"]) == 2


def test_a_rank_that_only_lost_its_connection_is_shown_too(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    RankEnd(0, "node1", 0, 9.0, exit_code=69, meaning=Meaning.CUT_OFF).write(run.attempt(1).rank_end(0))
    main(["logs", run.run_id, "--errors"])
    assert "rank 0 (node1, local rank 0) lost its connection to another rank" in capsys.readouterr().out
