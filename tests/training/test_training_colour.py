"""Random changes of colours: those of Pillow, and functions of seed, epoch and sample."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from packed_sources import small
from PIL import Image, ImageEnhance

from torusrun.training.data import colour
from torusrun.training.data.images import decode
from torusrun.training.data.images.crops import Box
from torusrun.training.data.packed import packed_file
from torusrun.training.data.packed.named import Named
from torusrun.training.data.view import View

CHANGES = list(enumerate([ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color]))


def image(chance: Random, size: tuple[int, int] = (13, 9)) -> Image.Image:
    return Image.frombytes("RGB", size, chance.randbytes(3 * size[0] * size[1]))


def pixels(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture).transpose(2, 0, 1).astype(np.float32)


@pytest.mark.parametrize("factor", [0.4, 1.0, 1.7])
@pytest.mark.parametrize(("place", "enhance"), CHANGES)
def test_each_change_is_that_of_pillow(place: int, enhance: type, factor: float, chance: Random) -> None:
    """torchvision's ColorJitter is made of these. Pillow rounds grey levels and the mean."""
    picture, by = image(chance), [1.0, 1.0, 1.0]
    by[place] = factor
    found = colour.changed(pixels(picture), by)
    assert abs(found - pixels(enhance(picture).enhance(factor))).max() <= 1.5
    assert factor != 1.0 or (found == pixels(picture)).all()


def test_the_factors_are_functions_of_seed_epoch_and_sample() -> None:
    found = np.array([colour.factors(1, epoch, sample, 0.4) for epoch in range(20) for sample in range(100)])
    assert (abs(found - 1) <= 0.4).all() and abs(found.mean(0) - 1).max() < 0.03
    assert np.unique(found).size == found.size and colour.factors(2, 0, 0, 0.4) != colour.factors(1, 0, 0, 0.4)


def test_images_of_files_are_changed_after_they_are_cut(chance: Random) -> None:
    picture, file = image(chance, (8, 8)), io.BytesIO()
    picture.save(file, "PNG")
    plain, found = np.empty((3, 4, 4), np.float32), np.empty((3, 4, 4), np.float32)
    by = colour.factors(1, 2, 3, 0.5)
    decode.train_pixels(file.getvalue(), lambda *_: Box(2, 2, 6, 6), True, False, plain)
    decode.train_pixels(file.getvalue(), lambda *_: Box(2, 2, 6, 6), True, False, found, by)
    assert np.allclose(found, colour.changed(plain, by), atol=1e-3) and not np.allclose(found, plain, atol=3)


@pytest.mark.parametrize("layout", ["png rows", "idx"])
def test_packed_images_are_changed_one_by_one(layout: str, tmp_path: Path, chance: Random) -> None:
    source, archive, _ = small(layout, tmp_path, chance)
    packed_file.prepare(source, archive, tmp_path)
    images = Named(source).build(seed=1, root=str(tmp_path))
    samples = [(0, 1), (0, 2), (1, 1)]
    plain, _ = images.train_batch(samples)
    images.look(View(colour=0.5))
    found, _ = images.train_batch(samples)
    alone = [images.train_batch([sample])[0] for sample in samples]
    assert torch.equal(found, torch.cat(alone))
    for each, was, (epoch, sample) in zip(found, plain, samples, strict=True):
        changed = colour.changed(was.float().numpy(), colour.factors(1, epoch, sample, 0.5))
        assert np.allclose(each.numpy(), changed, atol=1e-2)
    images.look(View(colour=0.5, augment=False))
    unchanged, _ = images.train_batch(samples)
    images.look(View(augment=False))
    assert torch.equal(unchanged, images.train_batch(samples)[0])
