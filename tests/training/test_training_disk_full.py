"""A full disk costs checkpoints, not the training; only the last one's loss is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from training_runs import TINY, TINY_STEPS, config, launched

from torusrun.orchestrator.run.folder.metrics import read
from torusrun.training.reporting.metrics import Metrics

ONE_CHECKPOINT = "1m"
FILE_LIMIT_KIB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A run folder whose checkpoints have room for one."""
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ONE_CHECKPOINT}", "none", str(checkpoints)], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(checkpoints)], check=True)


@pytest.mark.needs("mount")
def test_a_full_disk_costs_checkpoints_and_the_last_one_is_missed(small_disk: Path) -> None:
    with launched(config(small_disk, (2, 1), **TINY)) as launch:
        codes = launch.codes()
    assert set(codes) == {74}, f"all ranks must say that the last checkpoint is missing: {codes}"
    assert_one_line(launch.stderr_text, f"step {TINY_STEPS}", "No space left", "step-00000007", "resume")
    assert launch.events("checkpoint_failed")[0]["step"] == 14, "training must go on after a failed checkpoint"
    left = [path.name for path in (small_disk / "checkpoints").iterdir()]
    assert left == ["step-00000007"], f"half-written folders must be removed, found {left}"


def test_no_checkpoint_fits_at_all(tmp_path: Path) -> None:
    limited = ["sh", "-c", f'ulimit -f {FILE_LIMIT_KIB * 2} && exec "$@"', "sh"]
    with launched(config(tmp_path, **TINY), *limited) as launch:
        codes = launch.codes()
    assert codes == [74], f"exit 74 says that the last checkpoint could not be written: {codes}"
    assert_one_line(launch.stderr_text, f"step {TINY_STEPS}", "File too large", "none", "resume")
    assert launch.events("step")[-1]["step"] == TINY_STEPS, "training must go on to the last step"


def test_metrics_that_cannot_be_written_warn_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = Metrics(tmp_path / "missing" / "metrics.jsonl", attempt=1)
    metrics.write("step", step=1)
    metrics.write("step", step=2)
    assert capsys.readouterr().err.count("metrics are being lost") == 1, "one warning, not one per line"


SPEAKS = {
    "our process": "output.never_fail(); print('x' * 100_000); print(1 / 3); warnings.warn('w'); logging.error('e')",
    "a user's script": "output.warn('lost'); Metrics(Path('/dev/full/metrics'), 1).write('step', step=1)",
    "its notebook": "sys.stderr = io.StringIO(); output.warn('kept'); assert sys.stderr.getvalue() == 'kept\\n'",
}


@pytest.mark.parametrize("speaks", SPEAKS.values(), ids=SPEAKS)
def test_no_output_that_is_lost_ends_a_process(speaks: str) -> None:
    program = f"""
import io, logging, sys, warnings
from pathlib import Path
from torusrun.training.reporting import output
from torusrun.training.reporting.metrics import Metrics
{speaks}
"""
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full, timeout=300)
    assert ended.returncode == 0


def test_a_training_on_a_full_disk_is_not_ended_by_its_own_warnings(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    os.mkfifo(metrics)  # cannot be written, which is a warning
    with launched(config(tmp_path, **TINY), "sh", "-c", 'exec "$@" 2> /dev/full > /dev/full', "sh") as launch:
        assert launch.codes() == [0]


@pytest.mark.parametrize("put", [lambda path: path.symlink_to("elsewhere"), os.mkfifo], ids=["link", "pipe"])
def test_metrics_follow_no_link_and_wait_for_no_reader(
    tmp_path: Path, put: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "metrics.jsonl")
    Metrics(tmp_path / "metrics.jsonl", attempt=1).write("step", step=1)
    assert "metrics are being lost" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("loss", [float("nan"), float("-inf"), 1.5e15, -3e38])
def test_metrics_hold_no_number_that_a_reader_refuses(tmp_path: Path, loss: float) -> None:
    Metrics(tmp_path / "metrics.jsonl", attempt=3).write("step", step=1, loss=loss)
    (line,) = read(tmp_path / "metrics.jsonl")
    assert line["loss"] is None and line["attempt"] == 3 and line["event"] == "step"


def assert_one_line(stderr: str, *parts: str) -> None:
    lines = [line for line in stderr.splitlines() if line.startswith("training:")]
    assert len(lines) == 1, f"one clear line is wanted, got: {stderr}"
    for part in parts:
        assert part in lines[0], f"{part!r} is missing in: {lines[0]}"
    assert "Traceback" not in stderr, "a full disk is not a crash"
