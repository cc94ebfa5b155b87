"""What a measurement says of the input: real files are read, read again and decoded; a step is timed without that."""

from pathlib import Path
from typing import Any, cast

import pytest
from phased import CPU, Small, Watched, configured, digits, learner
from phased import group as group

from tests.images_tree import write_tree
from torusrun.training import measure
from torusrun.training.data import image_files
from torusrun.training.data.view import View
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.parts import Parts
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.schedule.phases import Course

ONE = Ranks(0, 1, 0)


def rows(folder: Path, data: DataSet) -> list[dict[str, Any]]:
    config = configured(folder, batch=8, epochs=1, phases=())
    parts = Parts(data, Small(), cast(Any, None), Course(config.train, data.train_samples))
    return list(measure.times(config, ONE, CPU, parts))


def test_images_are_read_read_again_and_decoded(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    images = image_files.build_imagefolder(seed=1, root=str(write_tree(tmp_path / "tree")))
    images.look(View(size=24))
    found = rows(tmp_path, images)
    assert [row["operation"] for row in found] == ["read", "read_again", "decode"]
    assert all(row["batch"] == 8 and row["time_s"] > 0 for row in found)
    assert found[-1]["cpu_s"] > 0 and not images.problems()


def test_a_data_set_that_does_not_read_ahead_has_no_input_of_its_own(group: None, tmp_path: Path) -> None:
    assert rows(tmp_path, digits()) == []


def test_other_samples_in_every_batch_and_only_what_a_data_set_can(group: None, tmp_path: Path) -> None:
    watched = Watched(digits())
    (row,) = rows(tmp_path, watched)
    assert row["operation"] == "decode" and not watched.hints
    assert len(watched.asked) == 8 * measure.BATCHES and set(watched.asked.values()) == {1}


def test_a_step_for_timing_reads_its_batch_once(group: None, tmp_path: Path) -> None:
    learning, watched = learner(tmp_path)
    for _ in range(3):
        learning.step_alone()
    assert len(watched.steps) == 1 and not watched.hints
