"""Which checkpoints count as complete."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from training.checkpoint.manifest import (
    IncompleteCheckpoint,
    complete_checkpoints,
    compose,
    name_of,
    newest_complete,
    verify,
)
from training.progress import Progress

STATE = b"weights" * 100


def write(folder: Path, step: int) -> Path:
    path = folder / name_of(step)
    path.mkdir(parents=True)
    (path / "state.pt").write_bytes(STATE)
    (path / "manifest.json").write_text(
        json.dumps(compose(Progress(step, 64 * step), step / 10, 2, {"state.pt": STATE}))
    )
    return path


def truncate(path: Path) -> None:
    (path / "state.pt").write_bytes(STATE[:-1])


def flip(path: Path) -> None:
    (path / "state.pt").write_bytes(b"W" + STATE[1:])


def lose_the_state(path: Path) -> None:
    (path / "state.pt").unlink()


def lose_the_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def cut_the_manifest(path: Path) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text()[:-10])


def list_nothing(path: Path) -> None:
    (path / "manifest.json").write_text(json.dumps(compose(Progress(20, 1280), 2.0, 2, {})))


def claim_another_step(path: Path) -> None:
    (path / "manifest.json").write_text(json.dumps(compose(Progress(21, 1280), 2.0, 2, {"state.pt": STATE})))


def write_a_list(path: Path) -> None:
    (path / "manifest.json").write_text("[]")


def test_complete_ones_newest_first(tmp_path: Path) -> None:
    for step in (5, 100_000_000, 20):
        write(tmp_path, step)
    assert [checkpoint.step for checkpoint in complete_checkpoints(tmp_path)] == [100_000_000, 20, 5]
    newest = newest_complete(tmp_path)
    assert newest is not None and newest.name == "step-100000000" and newest.attempt == 2


def in_its_place(name: str, plant: Callable[[Path], None]) -> Callable[[Path], None]:
    def planted(path: Path) -> None:
        (path / name).unlink()
        plant(path / name)

    planted.__name__ = f"{plant.__name__} in the place of {name}"
    return planted


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_to_a_copy(path: Path) -> None:
    copy = path.parent.parent / "copy"
    copy.write_bytes(STATE)
    path.symlink_to(copy)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def name_a_file_elsewhere(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(STATE)
    (path / "manifest.json").write_text(json.dumps(compose(Progress(20, 1280), 2.0, 2, {"../elsewhere": STATE})))


def nest_deeply(path: Path) -> None:
    (path / "manifest.json").write_text("[" * 200_000)


def count_without_end(path: Path) -> None:
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 20', '"step": 1e400'))


@pytest.mark.parametrize(
    "tear",
    [
        truncate, flip, lose_the_state, lose_the_manifest, cut_the_manifest, list_nothing, claim_another_step,
        write_a_list, name_a_file_elsewhere, nest_deeply, count_without_end,
        *(in_its_place("manifest.json", plant) for plant in (os.mkfifo, os.mkdir, link_to_zeros, huge)),
        *(in_its_place("state.pt", plant) for plant in (os.mkfifo, os.mkdir, link_to_zeros, link_to_a_copy, huge)),
    ],
)  # fmt: skip
def test_a_torn_one_is_passed_over(tmp_path: Path, tear: Callable[[Path], None]) -> None:
    write(tmp_path, 10)
    torn = write(tmp_path, 20)
    tear(torn)
    newest = newest_complete(tmp_path)
    assert newest is not None and newest.step == 10, f"{tear.__name__}: step 20 must not count as complete"
    with pytest.raises(IncompleteCheckpoint, match="step-00000020"):
        verify(torn)


def test_other_things_in_the_folder_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / ".tmp-x", 30)
    (tmp_path / "step-notes.txt").write_text("mine")
    assert newest_complete(tmp_path) is None
    assert list(complete_checkpoints(tmp_path / "missing")) == []
