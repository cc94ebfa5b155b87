"""The process that writes checkpoints: one at a time, what is ordered is done, and its errors arrive."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import until
from torusrun.training.checkpoint import store, writer
from torusrun.training.checkpoint.manifest import complete_checkpoints
from torusrun.training.checkpoint.store import CheckpointFolder, Order
from torusrun.training.checkpoint.writer import Writer
from torusrun.training.progress import Progress

CONTENT = b"weights" * 1000


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = os.memfd_create("state")
    os.write(descriptor, CONTENT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def started(capfd: pytest.CaptureFixture[str]) -> Iterator[tuple[Writer, int]]:
    """A writer, and its process."""
    before = children()
    made = writer.start()
    [pid] = children() - before
    yield made, pid
    if made._orders:
        made._orders.close()
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)


def children() -> set[int]:
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}


def order(folder: CheckpointFolder, steps: int) -> Order:
    half = len(CONTENT) // 2
    parts = [(half, len(CONTENT) - half), (0, half)]
    return replace(folder.order(Progress(steps, 64 * steps), steps / 10), files={"state.pt": parts})


def test_an_order_is_done_while_the_caller_continues(tmp_path: Path, memory: int, started: tuple[Writer, int]) -> None:
    made, pid = started
    folder = CheckpointFolder(tmp_path / "checkpoints", attempt=1)
    os.kill(pid, signal.SIGSTOP)
    made.begin(order(folder, 7), memory)
    assert made.finished(wait=False) is None, "its process is stopped"
    os.kill(pid, signal.SIGCONT)
    done = made.finished(wait=True)
    assert done and not done.error and made.finished(wait=True) is None
    [found] = complete_checkpoints(tmp_path / "checkpoints")
    assert found.sha256["state.pt"] == done.files["state.pt"][1] and found.progress == Progress(7, 448)
    half = len(CONTENT) // 2
    assert (found.path / "state.pt").read_bytes() == CONTENT[half:] + CONTENT[:half], "in the order of its parts"


def test_only_the_newest_three_stay(tmp_path: Path, memory: int) -> None:
    folder, here = CheckpointFolder(tmp_path, attempt=1), Writer()
    (tmp_path / "step-00000003").mkdir()
    for steps in (2, 4, 6, 8):
        here.begin(ordered := order(folder, steps), memory)
        done = here.finished(wait=False)
        assert done and not done.error
        folder.written(ordered, done.files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000006", "step-00000008"]


def test_the_errors_of_a_disk_arrive(tmp_path: Path, memory: int, started: tuple[Writer, int]) -> None:
    made, _ = started
    folder = CheckpointFolder(tmp_path / "checkpoints", attempt=1)
    ordered = order(folder, 7)
    (tmp_path / "checkpoints").write_text("in the way")
    made.begin(ordered, memory)
    done = made.finished(wait=True)
    assert done and done.error and done.error.errno == errno.EEXIST and done.error.strerror == "File exists"


def test_a_writer_that_died_fails_one_order_and_the_caller_writes_the_next(
    tmp_path: Path, memory: int, started: tuple[Writer, int]
) -> None:
    made, pid = started
    folder = CheckpointFolder(tmp_path, attempt=1)
    os.kill(pid, signal.SIGSTOP)
    made.begin(order(folder, 7), memory)
    os.kill(pid, signal.SIGKILL)
    done = made.finished(wait=True)
    assert done and done.error and "has died" in str(done.error)
    made.begin(order(folder, 9), memory)
    done = made.finished(wait=True)
    assert done and not done.error and [found.step for found in complete_checkpoints(tmp_path)] == [9]


@pytest.mark.parametrize("kept", [24_000, 100_000], ids=["more than is read", "more than is sent"])
def test_an_order_that_is_too_long_to_send_is_done_by_the_caller(
    tmp_path: Path, memory: int, started: tuple[Writer, int], kept: int
) -> None:
    made, pid = started
    folder = CheckpointFolder(tmp_path, attempt=1)
    os.kill(pid, signal.SIGSTOP)
    made.begin(replace(order(folder, 7), keep=list(range(kept))), memory)
    done = made.finished(wait=False)
    assert done and not done.error and [found.step for found in complete_checkpoints(tmp_path)] == [7]
    os.kill(pid, signal.SIGCONT)
    made.begin(order(folder, 9), memory)
    done = made.finished(wait=True)
    assert done and not done.error, "its process is as it was"


def test_a_defect_of_the_process_is_printed() -> None:
    program = "from torusrun.training.checkpoint import writer; made = writer.start()._orders; "
    program += "made.send(b'no order'); made.recv(1)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "JSONDecodeError" in ran.stderr, "the training learns only that it has died"


def test_a_slow_disk_does_not_keep_a_writer_whose_training_has_ended(
    tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(writer.time, "monotonic", lambda: now_s[0])
    alone = writer._Alone(parent=os.getppid() + 1)

    def block() -> None:
        alone()
        now_s[0] += writer.ALONE_S + 1

    monkeypatch.setattr(store, "BLOCK_BYTES", 1000)
    done = writer._written(order(CheckpointFolder(tmp_path, 1), 7), memory, block)  # type: ignore[arg-type]
    assert done.error and "too slow" in str(done.error) and not list(tmp_path.iterdir())


def test_the_process_ends_with_its_training(started: tuple[Writer, int]) -> None:
    made, pid = started
    os.kill(pid, signal.SIGTERM)
    assert made._orders
    made._orders.close()
    until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z", "the writer's end")
