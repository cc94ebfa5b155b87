"""Sharded checkpoints of other libraries count once they are complete.

recorded/sharded has the files of real ones, on two CPU ranks with torch 2.13: Lightning's ModelParallelStrategy by its
Trainer, and Accelerate by its own functions for FSDP2, because its Accelerator takes DDP on CPUs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.clock import Clock
from torusrun.orchestrator.run.folder.checkpoints import content, finished, newest
from torusrun.orchestrator.run.folder.judged import SETTLED_S, ToJudge

RECORDED = Path(__file__).parent / "recorded/sharded"


@pytest.fixture(params=["lightning-2.6.6", "accelerate-1.15.0"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint with the recorded names and sizes, alone in its folder."""
    for line in (RECORDED / f"{request.param}.txt").read_text().splitlines():
        name, size_bytes = line.rsplit(" ", 1)
        path = tmp_path / "kept" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(int(size_bytes)))
    [made] = (tmp_path / "kept").iterdir()
    return made


def test_a_complete_one_is_judged_and_is_the_newest(checkpoint: Path, tmp_path: Path) -> None:
    clock = Clock()
    queue = ToJudge(checkpoint.parent, tmp_path / "judged.json", clock=clock.monotonic)
    assert queue.next() is None, "it may still be written"
    clock.now_s += SETTLED_S
    found = queue.next()
    assert found and found.path == checkpoint and found.step in (4, 5)
    assert newest(checkpoint.parent) == checkpoint and content(checkpoint.parent)


def test_one_whose_metadata_is_missing_does_not_count(checkpoint: Path, tmp_path: Path) -> None:
    for metadata in checkpoint.rglob(".metadata"):
        metadata.rename(metadata.with_name(".metadata.tmp"))  # as PyTorch writes it
        assert finished(checkpoint.parent) == [] and content(checkpoint.parent) == ""
        assert ToJudge(checkpoint.parent, tmp_path / "judged.json").next(over=True) is None
        metadata.with_name(".metadata.tmp").rename(metadata)
    assert finished(checkpoint.parent) == [checkpoint]
