"""The folder of checkpoints: when one is due, which stay, and which a rank loads."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from states import saved
from training_runs import TINY, config, finish, launched

from torusrun.training.checkpoint.interval import FIRST_STEPS, Interval, daly_s
from torusrun.training.checkpoint.loading import RefusedCheckpoint, load
from torusrun.training.checkpoint.manifest import complete_checkpoints, verify
from torusrun.training.checkpoint.store import CheckpointFolder, Point, kept
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import CheckpointKeys, ScheduleKeys

BEST = CheckpointKeys(last=1, best=True)


def save(folder: CheckpointFolder, *steps: int) -> None:
    for step in steps:
        saved(folder, {"weights": torch.arange(100)}, Progress(step, 64 * step), step / 10)


def to_keep(folder: CheckpointFolder, steps: int) -> list[int] | None:
    return folder.order(Progress(steps, 64 * steps), steps / 10).keep


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


def lost(interval_s: float, save_s: float, failure_s: float) -> float:
    """The share of the time that saves take, and that steps take which are computed again: half an interval each."""
    return save_s / interval_s + interval_s / 2 / failure_s


@pytest.mark.parametrize("number", range(20))
def test_no_other_interval_loses_less(chance: Random, number: int) -> None:
    save_s, failure_s = 10 ** chance.uniform(-3, 1), 10 ** chance.uniform(3, 7)
    best = lost(daly_s(save_s, failure_s), save_s, failure_s)
    assert all(lost(daly_s(save_s, failure_s) * factor, save_s, failure_s) > best for factor in (0.5, 0.9, 1.1, 2.0))


def test_the_interval_follows_what_is_measured_and_all_ranks_know_it() -> None:
    first, other = Interval(None, 5000.0), Interval(None, 5000.0)
    for one in (first, other):
        one.begin(steps=200, now_s=10.0)
    assert not first.due(200, 200 + FIRST_STEPS - 1) and first.due(200, 200 + FIRST_STEPS)
    after = first.measured(250, 10.0 + 250 / 5, save_s=0.1, writing_s=0.5)
    assert after == round(daly_s(0.1, 5000.0) * 1) == 32, "a step takes a second"
    for one in (first, other):
        one.next(250, after)
        assert not one.due(280, 281) and one.due(281, 282) and one.due(281, 300), "several steps may be taken at once"
    assert first.measured(282, 10.0 + 282 / 5, save_s=0.1, writing_s=600.0) > 500, "the disk is slower than that"


def test_an_interval_that_the_run_names_holds() -> None:
    named = Interval(7, 5000.0)
    named.begin(3, 0.0)
    assert [step for step in range(4, 30) if named.due(step - 1, step)] == [7, 14, 21, 28] and not named.measures


@pytest.mark.parametrize("number", range(30))
def test_what_stays_is_what_would_stay_of_all(chance: Random, number: int) -> None:
    keys = CheckpointKeys(chance.randrange(1, 5), chance.random() < 0.5)
    seen, stay = [], []
    step, epoch = 0, 0.0
    for _ in range(40):
        step, epoch = step + chance.randrange(1, 9), epoch + chance.random()
        seen.append(Point(step, epoch, chance.choice([None, chance.randrange(5) / 4])))
        found = kept([*stay, seen[-1]], keys)
        stay = [point for point in [*stay, seen[-1]] if point.step in found]
        assert found == kept(seen, keys), "a deleted checkpoint is not missed later"
        assert {point.step for point in seen[-keys.last :]} <= found
        accuracies = [point.accuracy for point in seen if point.accuracy is not None]
        if keys.best and accuracies:
            assert max(accuracies) in {point.accuracy for point in stay}


def test_ranks_save_together_at_an_interval_that_one_of_them_measures(tmp_path: Path) -> None:
    keys = {**TINY, "epochs": 3, "checkpoint_every_steps": None}
    run = finish({**config(tmp_path, (2, 1), **keys), "mean_time_to_failure_s": 0.1})
    steps = [event["step"] for event in run.events("checkpoint")]
    assert steps[0] == FIRST_STEPS and len(steps) > 2, f"with a failure in 0.1 s they are frequent: {steps}"
    assert all(0 < event["seconds"] < 10 and event["writing_s"] > 0 for event in run.events("checkpoint"))


@pytest.mark.parametrize("every", [7, 23], ids=["", "also due then"])
def test_the_best_checkpoint_stays(tmp_path: Path, every: int) -> None:
    keys = {**TINY, "checkpoint_every_steps": every, "checkpoints": CheckpointKeys(last=1, best=True)}
    run = finish(config(tmp_path, (2, 1), **keys))
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "checkpoints").glob("*/manifest.json")]
    evaluated = run.events("eval")
    first, last = (event["accuracy"] for event in evaluated)
    assert first < last, "the end is the best here: otherwise it would stay without its accuracy"
    found = {manifest["step"]: manifest.get("accuracy") for manifest in manifests}
    assert found == {event["step"]: pytest.approx(event["accuracy"], abs=1e-4) for event in evaluated}
    saves = [event["step"] for event in run.events("checkpoint")]
    assert saves.count(evaluated[0]["step"]) == 1 and len(saves) == len(set(saves)), "no state is written twice"


def test_a_training_that_diverges_keeps_its_good_checkpoints_and_ends(tmp_path: Path) -> None:
    explodes = ScheduleKeys("step", warmup_epochs=0.0, options={"at": (1.0,) * 5, "factor": 1e6})
    keys = {**TINY, "schedule": explodes, "checkpoints": CheckpointKeys(last=1, memory=True)}
    with launched(config(tmp_path, (2, 1), **keys)) as launch:
        assert launch.codes() == [1, 1], launch.stderr_text
    (newest,) = complete_checkpoints(tmp_path / "checkpoints")
    assert newest.step == 21, "the epoch ends after 23 steps"
    for log in launch.logs:  # the same text in every attempt and on every rank: that ends a run that keeps going
        (line,) = log.read_text().splitlines()
        assert "after step 28 the loss or a weight is not finite" in line and "step-00000021" in line
    assert not (tmp_path / "memory").exists(), "the next attempt must not continue from such a state"


CPU = torch.device("cpu")
STRANGER = 12345
NAME = "step-00000007"


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, str]:
    folder = CheckpointFolder(tmp_path / "checkpoints", attempt=1)
    saved(folder, {"seed": 7, "weights": torch.arange(3)}, Progress(7, 448), 0.5)
    assert folder.newest is not None
    return tmp_path / "checkpoints", folder.newest.sha256["state.pt"]


def test_the_very_checkpoint_of_this_run(written: tuple[Path, str]) -> None:
    folder, sha256 = written
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
def test_no_other_name(written: tuple[Path, str], name: str) -> None:
    folder, sha256 = written
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
def test_nothing_put_in_its_place(written: tuple[Path, str], harm: Callable[[Path], None], message: str) -> None:
    folder, sha256 = written
    harm(folder / NAME)
    with pytest.raises(RefusedCheckpoint, match=f"{NAME}.*{message}.*resume the run"):
        load(folder, NAME, sha256, CPU)


@pytest.mark.needs("users")
@pytest.mark.parametrize("what", ["", "state.pt"], ids=["folder", "state"])
def test_nothing_of_another_user(written: tuple[Path, str], what: str) -> None:
    folder, sha256 = written
    os.chown(folder / NAME / what, STRANGER, STRANGER)
    with pytest.raises(RefusedCheckpoint, match=f"belongs to user {STRANGER} and not to user 0"):
        load(folder, NAME, sha256, CPU)


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(RuntimeError, match="checkpoints: cannot be read: Not a directory.*resume the run"):
        CheckpointFolder(tmp_path / "checkpoints", attempt=1)
