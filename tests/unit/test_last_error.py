"""The error in a process's log: of recorded and reported logs, with what others write before and after it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from torusrun.orchestrator.run.folder.log_errors.last_error import LoggedError, last_error, read_last

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


def test_an_error_is_searched_beyond_what_was_written_after_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{TB}\nKeyError: 7\n" + "#5 0x00007f in start_thread () from libc.so.6\n" * 4000)
    assert read_last(log).reason == "KeyError: 7"
    assert read_last(tmp_path / "none") == LoggedError()


def test_the_end_of_a_large_log_is_read_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 28)
        file.seek(1 << 28)
        file.write(f"\n{TB}\nKeyError: 7\n".encode())
    begin_s = time.monotonic()
    assert read_last(log).reason == "KeyError: 7"
    assert time.monotonic() - begin_s < 2.0


def test_a_long_line_with_the_marks_of_a_progress_bar_is_read_in_no_time() -> None:
    began_s = time.thread_time()
    assert last_error(["5%|" + "|/" * 1900 + " [", "ValueError: bad"]).reason == "ValueError: bad"
    assert time.thread_time() - began_s < 5.0, "it took 20 s"
