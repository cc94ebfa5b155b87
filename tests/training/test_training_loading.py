"""Which checkpoints a rank loads when another one names them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from states import saved as save

from torusrun.training.checkpoint.loading import RefusedCheckpoint, load
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.progress import Progress

CPU = torch.device("cpu")
STRANGER = 12345
NAME = "step-00000007"


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, str]:
    folder = CheckpointFolder(tmp_path / "checkpoints", attempt=1)
    save(folder, {"seed": 7, "weights": torch.arange(3)}, Progress(7, 448), 0.5)
    assert folder.newest is not None
    return tmp_path / "checkpoints", folder.newest.sha256["state.pt"]


def test_the_very_checkpoint_of_this_run(saved: tuple[Path, str]) -> None:
    folder, sha256 = saved
    state = load(folder, NAME, sha256, CPU)
    assert state["seed"] == 7 and torch.equal(state["weights"], torch.arange(3))
    reopened = CheckpointFolder(folder, attempt=2).newest
    assert reopened is not None and reopened.sha256["state.pt"] == sha256, "what is saved and what is read must agree"


@pytest.mark.parametrize(
    "name",
    [
        "/absolute/step-00000007", "../elsewhere/step-00000007", "step-00000007/..", "step-00000007/", "", ".", "..",
        "step-7", "step-000000007", "step-00000007\n", "step-٠٠٠٠٠٠٠٧", "step-0000000７", "step-" + "9" * 5000,
        ".tmp-step-00000007-1", "step-00000007\0",
    ],
)  # fmt: skip
def test_no_other_name(saved: tuple[Path, str], name: str) -> None:
    folder, sha256 = saved
    shutil.copytree(folder, folder.parent / "elsewhere")
    with pytest.raises(RefusedCheckpoint, match="is not the name of a checkpoint"):
        load(folder, name, sha256, CPU)


def link_the_folder(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def link_the_state(path: Path) -> None:
    (path / "state.pt").rename(path / "real.pt")
    (path / "state.pt").symlink_to("real.pt")


def make_the_state_a_pipe(path: Path) -> None:
    (path / "state.pt").unlink()
    os.mkfifo(path / "state.pt")


def make_the_state_a_folder(path: Path) -> None:
    (path / "state.pt").unlink()
    (path / "state.pt").mkdir()


def write_another_state(path: Path) -> None:
    torch.save({"seed": 8}, path / "state.pt")


def lose_all(path: Path) -> None:
    shutil.rmtree(path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (link_the_folder, "cannot be read: (Not a directory|Too many levels of symbolic links)"),
        (link_the_state, "cannot be read: this is a symbolic link"),
        (make_the_state_a_pipe, "cannot be read: this is not a regular file"),
        (make_the_state_a_folder, "cannot be read: this is not a regular file"),
        (write_another_state, "not the content that rank 0 has verified"),
        (lose_all, "cannot be read: No such file or directory"),
    ],
)
def test_nothing_put_in_its_place(saved: tuple[Path, str], harm: Callable[[Path], None], message: str) -> None:
    folder, sha256 = saved
    harm(folder / NAME)
    with pytest.raises(RefusedCheckpoint, match=f"{NAME}.*{message}.*resume the run"):
        load(folder, NAME, sha256, CPU)


@pytest.mark.needs("users")
@pytest.mark.parametrize("what", ["", "state.pt"], ids=["folder", "state"])
def test_nothing_of_another_user(saved: tuple[Path, str], what: str) -> None:
    folder, sha256 = saved
    os.chown(folder / NAME / what, STRANGER, STRANGER)
    with pytest.raises(RefusedCheckpoint, match=f"belongs to user {STRANGER} and not to user 0"):
        load(folder, NAME, sha256, CPU)


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(RuntimeError, match="checkpoints: cannot be read: Not a directory.*resume the run"):
        CheckpointFolder(tmp_path / "checkpoints", attempt=1)
