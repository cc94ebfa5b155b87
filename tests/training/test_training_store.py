"""The folder of checkpoints: what an evaluation adds to one, and what is read of it when it is opened."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from states import saved

from torusrun.training.checkpoint.manifest import verify
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import CheckpointKeys

BEST = CheckpointKeys(last=1, best=True)


def save(folder: CheckpointFolder, *steps: int) -> None:
    for step in steps:
        saved(folder, {"weights": torch.arange(100)}, Progress(step, 64 * step), step / 10)


def to_keep(folder: CheckpointFolder, steps: int) -> list[int] | None:
    return folder.order(Progress(steps, 64 * steps), steps / 10, []).keep


def damage(path: Path) -> None:
    with open(path / "state.pt", "r+b") as file:
        file.write(b"other")


def test_an_accuracy_is_added_to_a_complete_checkpoint_whose_state_stays(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, 1, BEST)
    save(folder, 7)
    path = tmp_path / "step-00000007"
    before, file = json.loads((path / "manifest.json").read_text()), (path / "state.pt").stat()
    assert not folder.evaluated(8, 0.5), "there is no such checkpoint"
    assert folder.evaluated(7, 0.5) and folder.best == 0.5
    assert json.loads((path / "manifest.json").read_text()) == {**before, "accuracy": 0.5}
    assert (path / "state.pt").stat() == file and [each.name for each in tmp_path.iterdir()] == [path.name]
    assert to_keep(folder, 9) == [7], "it is the best one now"
    reopened = CheckpointFolder(tmp_path, 2, BEST)
    assert reopened.newest == folder.newest == verify(path) and reopened.best == 0.5
    assert reopened.evaluated(7, 0.25) and reopened.best == 0.25, "the next attempt has evaluated it anew"


@pytest.mark.parametrize("planted", [".tmp-step-00000007-1", "step-00000007"])
def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path, planted: str) -> None:
    """In a folder that others may write, a link with a name that comes next could lead to files of the user."""
    (mine := tmp_path / "mine").mkdir()
    (mine / "state.pt").write_text("years of work")
    place = tmp_path / "checkpoints"
    folder = CheckpointFolder(place, 1, BEST)
    save(folder, 5)
    (place / planted).symlink_to(mine)
    save(folder, 7)
    assert verify(place / "step-00000007") == folder.newest
    assert os.listdir(mine) == ["state.pt"] and (mine / "state.pt").read_text() == "years of work"
    (place / ".tmp-step-00000009-1").symlink_to(mine)
    CheckpointFolder(place, 2, BEST)
    assert not list(place.glob(".tmp-*")) and (mine / "state.pt").exists()


def test_an_accuracy_that_cannot_be_written_leaves_the_checkpoint_as_it_was(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, 1, BEST)
    save(folder, 7)
    path = tmp_path / "step-00000007"
    (path / ".tmp-manifest.json").mkdir()
    with pytest.raises(OSError, match="manifest"):
        folder.evaluated(7, 0.5)
    assert verify(path) == folder.newest and folder.best < 0


def test_only_the_newest_complete_checkpoint_is_read_when_a_folder_is_opened(tmp_path: Path) -> None:
    save(CheckpointFolder(tmp_path, 1, CheckpointKeys(last=5)), 1, 2, 3, 4, 5)
    for step in (2, 5):
        damage(tmp_path / f"step-{step:08d}")
    (tmp_path / "step-00000001" / "state.pt").write_bytes(b"short")
    folder = CheckpointFolder(tmp_path, 2, CheckpointKeys(last=4))
    assert folder.newest and folder.newest.step == 4, "the newest one is damaged"
    assert to_keep(folder, 6) == [2, 3, 4], "of older ones the size is compared, and the content is not read"
