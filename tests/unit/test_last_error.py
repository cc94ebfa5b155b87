"""The error in a process's log, of recorded and reported logs; tracebacks, and `logs --errors`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import prints
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.log_errors.last_error import LoggedError, last_error, read_last
from torusrun.orchestrator.run.folder.log_errors.tracebacks import MOST_BLOCKS, MOST_LINES, Tracebacks
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder

RECORDED = Path(__file__).parent / "recorded" / "errors"
TB = 'Traceback (most recent call last):\n  File "/home/a/train.py", line 12, in <module>\n    main()'
REPORTED = re.split(r"(?m)^%% ", (RECORDED / "reported.txt").read_bytes().decode().replace("{TB}", TB))[1:]
RAISED = "torchrun's rank 1 ended with exit code 1: RuntimeError: probability tensor contains either inf, nan or "
LAST = {
    "torchrun-raises": f"{RAISED}element < 0",
    "torchrun-tee": f"{RAISED}element < 0",
    "torchrun-killed": "torchrun's rank 1 was killed by SIGKILL",
    "torchrun-records": "torchrun's rank 1 ended with exit code 1: ValueError: Expected input batch_size (16) to match "
    "target batch_size (8).",
    "accelerate": "RuntimeError: Expected all tensors to be on the same device",
    "spawn": "KeyError: 'no such layer'",
    "loader": "ValueError: image 50 is truncated",
    "rich": "ValueError: bad value of lr",
    "lightning": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 2x2)",
    "pool": "ValueError: bad shard 3",
    "at-exit": "TypeError: 'NoneType' object is not subscriptable",
    "syntax": "SyntaxError: '(' was never closed",
    "cpp": "std::runtime_error: mesh file is empty",
    "state-dict": "RuntimeError: Error(s) in loading state_dict for Linear: Missing key(s) in state_dict: "
    '"weight", "bias".',
}


def error(*lines: str) -> LoggedError:
    return last_error("\n".join(lines).split("\n"))


@pytest.mark.parametrize(("name", "reason"), LAST.items(), ids=LAST)
def test_the_reason_of_a_recorded_log_is_its_own_error(name: str, reason: str) -> None:
    found = read_last(RECORDED / f"{name}.txt")
    assert (found.reason, found.known, found.lost_peer) == (reason, True, False)


@pytest.mark.parametrize("case", REPORTED, ids=[case.split("\n")[0][:40] for case in REPORTED])
def test_the_reason_of_a_reported_log_is_its_own_error(case: str) -> None:
    reason, _, log = case.partition("\n")
    assert error(log).reason == reason


@pytest.mark.parametrize(
    ("line", "full"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity)", True),
        ("RuntimeError: CUDA error: out of memory", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", True),
        ("tensorflow.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[1]", True),
        ("MemoryError: Unable to allocate 3.2 GiB for an array", False),
    ],
)
def test_the_memory_of_a_gpu_is_full_in_older_words_too(line: str, full: bool) -> None:
    assert error(TB, line, "wandb: Synced").device_full is full
    assert not error(TB, line, "again with half the batch", TB, "ValueError: no batch").device_full, "it was handled"


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited or a network error", True),
        ("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /worker/0", True),
        ("torch.distributed.DistNetworkError: failed to recv, got 0 bytes", True),
        ("requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='h.co', port=443): Read timed out.", False),
    ],
)
def test_a_web_server_that_does_not_answer_is_no_lost_rank(line: str, lost: bool) -> None:
    assert error(TB, line).lost_peer is lost


def test_a_line_of_code_is_no_message() -> None:
    code = '    raise ValueError("x") if "CUDA out of memory" in text or "timed out" in text else error'
    found = error(TB, code, "ValueError: x")
    assert not (found.device_full or found.lost_peer)


def test_of_a_torchrun_the_worker_that_failed_first_is_known() -> None:
    killed, raised = (read_last(RECORDED / f"torchrun-{how}.txt").worker for how in ("killed", "raises"))
    assert killed and (killed.rank, killed.local_rank, killed.signal) == (1, 1, 9)
    assert raised and (raised.rank, raised.exit_code, raised.signal) == (1, 1, None)


def test_an_error_is_searched_beyond_what_was_written_after_it_and_in_a_large_log_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{TB}\nKeyError: 7\n" + "#5 0x00007f in start_thread () from libc.so.6\n" * 4000)
    assert read_last(log).reason == "KeyError: 7"
    assert read_last(tmp_path / "none") == LoggedError()
    log = tmp_path / "log"
    with log.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 28)
        file.seek(1 << 28)
        file.write(f"\n{TB}\nKeyError: 7\n".encode())
    began_s = time.thread_time()
    assert read_last(log).reason == "KeyError: 7"
    assert time.thread_time() - began_s < 2.0


def test_a_long_line_with_the_marks_of_a_progress_bar_is_read_in_no_time() -> None:
    began_s = time.thread_time()
    assert last_error(["5%|" + "|/" * 1900 + " [", "ValueError: bad"]).reason == "ValueError: bad"
    assert time.thread_time() - began_s < 5.0, "it took 20 s"


# `logs --errors`: tracebacks out of everything that was written, each once, and the ranks that ended badly.


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
    return subprocess.run(command, capture_output=True, text=True, timeout=240).stderr.splitlines()


def test_a_traceback_is_one_block_with_the_exceptions_that_caused_it_and_prefixes_do_not_hide_it() -> None:
    shown = crash(CHAINED)
    assert shown[-1].startswith("KeyError") and sum("Traceback" in line for line in shown) == 3
    (block,) = tracebacks(["before", "  indented", *shown, "after", "  indented"])
    assert block == [line for line in shown if line]
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
    assert prints(capsys, "logs", run.run_id, "--errors").splitlines() == [
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
