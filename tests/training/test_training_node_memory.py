"""Killed ranks continue from the memory of a node, one step earlier at most, with the bits of an undisturbed run."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from training_runs import TINY, TINY_STEPS, Launch, assert_same_state, config, finish, launched

from torusrun.training.checkpoint.node_state import HEAD_BYTES, SLOTS, Head, head_of, read
from torusrun.training.recipe.train import CheckpointKeys

GRID = (2, 2)
SAVED = 15
KEYS = {**TINY, "checkpoint_every_steps": SAVED, "checkpoints": CheckpointKeys(memory=True)}
NODES = ("a", "a", "b", "b")  # of the ranks


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = finish(config(folder, GRID, **KEYS), memories=memories(folder))
    assert run.events("start")[0]["resumed_from"] is None, "there was nothing to continue from"
    assert not [*folder.glob("[ab]")], "a training that is done must remove its copies on all nodes"
    return folder


def memories(folder: Path) -> list[Path]:
    """The folder of each rank's node."""
    return [folder / node for node in NODES]


def killed(folder: Path, step: int) -> int:
    """Kill all ranks at about a step; the newest step that was reported before."""
    with launched(config(folder, GRID, **KEYS), memories=memories(folder), hold=[step]) as launch:
        launch.wait_until_held(step)
        reported = int(launch.events("step")[-1]["step"])
        for rank in launch.ranks:
            os.kill(rank.pid, signal.SIGKILL)
        launch.codes()
    return reported


def resumed(folder: Path, attempt: int = 2) -> tuple[str | None, int, Launch]:
    """Run to the end: where the state came from, its step, and the ranks."""
    run = finish(config(folder, GRID, attempt=attempt, **KEYS), memories=memories(folder))
    start = run.events("start")[0]
    return start["resumed_from"], start["step"], run


def test_killed_ranks_continue_one_step_earlier_at_most(undisturbed: Path, tmp_path: Path, chance: Random) -> None:
    reported = killed(tmp_path, chance.randrange(2, TINY_STEPS - 10))
    came_from, step, _ = resumed(tmp_path)
    assert step >= reported - 1, f"step {reported} was reported, and the next attempt began after step {step}"
    assert came_from in (f"step-{step:08d}", f"memory of {os.uname().nodename}, step {step}"), came_from
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, f"killed after step {reported}")


def test_a_node_without_its_memory_gets_the_state_from_the_other(undisturbed: Path, tmp_path: Path) -> None:
    killed(tmp_path, SAVED + 4)
    shutil.rmtree(tmp_path / "a")
    came_from, step, _ = resumed(tmp_path)
    assert came_from and came_from.startswith("memory of") and step >= SAVED + 2, came_from
    assert_same_state(tmp_path, undisturbed, TINY_STEPS, "the memory of a node was lost")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose two nodes hold the same state, newer than the checkpoint."""
    folder = tmp_path_factory.mktemp("interrupted")
    killed(folder, SAVED + 4)
    shutil.rmtree(folder / "b")
    shutil.copytree(folder / "a", folder / "b")
    shutil.copytree(folder, folder.with_name("kept"))
    return folder


@pytest.fixture
def again(interrupted: Path) -> Path:
    """The interrupted run as it was: another folder would be another run."""
    shutil.rmtree(interrupted)
    return Path(shutil.copytree(interrupted.with_name("kept"), interrupted))


def whole(node: Path) -> list[tuple[str, Head]]:
    """The slots that are whole, the newest last; the ranks may have been killed while they wrote one."""
    held = [(slot, head) for slot in SLOTS if (head := head_of(node, slot))]
    assert held, "one slot must always be whole"
    return sorted(held, key=lambda each: each[1].step)


def newest(node: Path) -> tuple[str, Head]:
    return whole(node)[-1]


def torn(folder: Path) -> None:
    """As a rank leaves the newer slot that is killed while it copies."""
    *older, (slot, _) = whole(folder / "a")
    if not older:
        return  # the ranks were killed while they copied
    for node in (folder / "a", folder / "b"):
        with (node / slot).open("r+b") as file:
            file.write(bytes(HEAD_BYTES))


def other_tensors(folder: Path) -> None:
    for slot in SLOTS:
        flipped(folder / "b" / slot, HEAD_BYTES)


def flipped(part: Path, at: int) -> None:
    with part.open("r+b") as file:
        file.seek(at)
        number = file.read(1)[0]
        file.seek(at)
        file.write(bytes([number ^ 1]))


def foreign(folder: Path) -> None:
    os.chown(folder / "b", 12345, 12345)


def linked(folder: Path) -> None:
    (folder / "b").rename(folder / "elsewhere")
    (folder / "b").symlink_to("elsewhere")


@pytest.mark.parametrize(
    "damage", [torn, other_tensors, pytest.param(foreign, marks=pytest.mark.needs("users")), linked]
)
def test_all_ranks_take_the_same_state_whatever_is_wrong_on_a_node(
    undisturbed: Path, again: Path, damage: Callable[[Path], None]
) -> None:
    damage(again)
    _, head = newest(again / "a")
    came_from, step, run = resumed(again)
    if damage is other_tensors:
        assert came_from == f"step-{SAVED:08d}", "the disk counts if the nodes have different states"
    else:
        assert step == head.step and "memory of" in str(came_from), came_from
    if damage in (foreign, linked):
        assert run.stderr_text.count("no copies of the state in the memory") == 1, "the refusal is reported once"
        assert (again / "b").lstat(), "what is not ours stays"
    assert_same_state(again, undisturbed, TINY_STEPS, damage.__name__)


def cut_short(file: Path, head: Head) -> None:
    os.truncate(file, HEAD_BYTES + 10)


def other_words(file: Path, head: Head) -> None:
    flipped(file, head.pieces[0][0] + 100)


def other_head(file: Path, head: Head) -> None:
    flipped(file, 40)


def empty(file: Path, head: Head) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_short, other_words, other_head, empty])
def test_a_damaged_copy_is_not_read(again: Path, damage: Callable[[Path, Head], None]) -> None:
    slot, head = newest(again / "a")
    read(again / "a", slot, head)
    damage(again / "a" / slot, head)
    assert head_of(again / "a", slot) is None


def test_another_recipe_does_not_take_the_copies(again: Path) -> None:
    with launched(config(again, GRID, attempt=2, **{**KEYS, "seed": 2}), memories=memories(again)) as run:
        run.wait_for_step(SAVED + 1)
    assert run.events("start")[0]["resumed_from"] == f"step-{SAVED:08d}"


def test_a_stopped_training_leaves_no_copies(tmp_path: Path) -> None:
    with launched(config(tmp_path, GRID, **KEYS), memories=memories(tmp_path), hold=[3]) as launch:
        launch.wait_until_held(3)
        launch.ranks[1].send_signal(signal.SIGTERM)
        launch.release(3)
        assert set(launch.codes()) == {75}, launch.stderr_text
    assert not [*tmp_path.glob("[ab]")], "the checkpoint is on the disk"


def test_another_number_of_ranks_continues_from_memory(again: Path) -> None:
    _, head = newest(again / "b")
    run = finish(config(again, attempt=2, **KEYS), memories=[again / "b"])
    start = run.events("start")[0]
    assert (start["resumed_from"].split()[0], start["step"]) == ("memory", head.step)
