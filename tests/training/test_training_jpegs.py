"""Two ranks learn from JPEG files: their size changes on the way, and they are tested as rectangles."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from training_runs import config, finish, launched, read_lines

from tests.images_tree import write_tree
from torusrun.training.data import image_files
from torusrun.training.data.view import View
from torusrun.training.recipe.train import DataKeys, ModelKeys, PhaseKeys, ScheduleKeys

OWN = """
import torch


def tiny(classes, shape, seed):
    features = torch.nn.Conv2d(shape[0], 8, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
    return torch.nn.Sequential(*features, torch.nn.Flatten(), torch.nn.Linear(8, classes))
"""


def test_two_ranks_learn_from_jpeg_files_of_changing_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own.py").write_text(OWN)
    root = write_tree(tmp_path / "tree")
    (root / "train/china/003.jpg").write_bytes(b"")
    options = {"root": str(root), "test_batch": 4}
    small, large = PhaseKeys(until=1, size=16), PhaseKeys(until=2, size=24, test_size=32, rectangular=True)
    run = finish(
        config(
            tmp_path, (2, 1), model=ModelKeys("own:tiny"), data=DataKeys("imagefolder", options, workers=1),
            schedule=ScheduleKeys(warmup_epochs=0), phases=(small, large), epochs=2, batch=6, trace=True,
        )
    )  # fmt: skip
    traced = [line for line in read_lines(next(tmp_path.rglob("trace.jsonl"))) if "size" in line]
    assert [line["size"] for line in traced] == [16] * 6 + [24] * 6
    assert f"{root}/train/china/003.jpg: not an image" in run.stderr_text
    images = image_files.build_imagefolder(seed=1, **options)
    images.look(View(size=24, test_size=32, rectangular=True))
    batches = list(images.test_batches(0, 1))
    assert len({batch.shape for batch, _ in batches}) > 1 and sum(len(labels) for _, labels in batches) == 15
    model = own_model(tmp_path / "own.py")
    state = torch.load(tmp_path / "checkpoints/step-00000012/state.pt", weights_only=True)["model"]
    model.load_state_dict(state)
    with torch.inference_mode():
        normal = ((images.normalize_on_device(batch), labels) for batch, labels in batches)
        right = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in normal)
    assert run.events("done")[0]["accuracy"] == pytest.approx(right / 15, abs=1e-4), "as one process tests all images"


def test_a_test_set_without_a_good_image_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own.py").write_text(OWN)
    root = write_tree(tmp_path / "tree", train=2, test=2)  # three test images for a rank: fewer than are always allowed
    for image in root.glob("val/*/*.jpg"):
        image.write_bytes(b"")
    document = config(
        tmp_path, (2, 1), model=ModelKeys("own:tiny"), data=DataKeys("imagefolder", {"root": str(root)}, size=16),
        schedule=ScheduleKeys(warmup_epochs=0), epochs=1, batch=6,
    )  # fmt: skip
    with launched(document) as run:
        assert 0 not in run.codes()
    assert "none of the 6 test samples can be read" in run.stderr_text and "Traceback" not in run.stderr_text
    assert f"{root}/val/china/000.jpg: not an image" in run.stderr_text and not run.events("done")


def own_model(path: Path) -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("own", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: torch.nn.Module = module.tiny(3, (3, 16, 16), 1)
    return model
