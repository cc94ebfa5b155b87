"""The image that a run keeps: found to be the one that was submitted, or named as changed."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.image.recorded import Image


@pytest.fixture
def image(tmp_path: Path) -> Image:
    path = tmp_path / "x.sif"
    path.write_bytes(b"image")
    return Image(str(path), file_checksum(path), "x", labels={"a": "b"})


def test_an_image_is_used_as_it_was_submitted_and_refused_once_it_was_replaced(image: Image) -> None:
    assert image_kept.changed(image) is None
    image_kept.verify(image)
    Path(image.path).write_bytes(b"imagE")
    with pytest.raises(SiteError, match=r"x\.sif: this is not the image that the run was submitted with: .*--new-im"):
        image_kept.verify(image)
    Path(image.path).unlink()
    with pytest.raises(SiteError, match="cannot be read: No such file or directory"):
        image_kept.verify(image)
    os.mkfifo(image.path)
    with pytest.raises(SiteError, match="cannot be read: this is not a regular file"):
        image_kept.verify(image)


def test_a_kept_image_comes_back_as_it_went_in(image: Image, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.folder.mkdir()
    assert image_kept.kept(run) is None
    image_kept.keep(run, {"x": image}, "x")
    assert image_kept.kept(run) == image


@pytest.mark.parametrize(
    "change",
    [{"path": 7}, {"sha256": "0" * 63}, {"labels": []}, {"bound_training": "yes"}, {"definition": None}, {"name": []}],
)
def test_a_damaged_record_of_an_image_is_one_message(image: Image, tmp_path: Path, change: dict[str, Any]) -> None:
    run = RunFolder(tmp_path)
    run.image.write_text(json.dumps({**asdict(image), **change}))
    with pytest.raises(SiteError, match=r"image\.json: this is damaged: "):
        image_kept.kept(run)
