"""What of an image is seen: random crops by torchvision's rule, test images by fast.ai's."""

from __future__ import annotations

import io
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.images_tree import CLASSES, write_tree
from torusrun.training.data.images import decode
from torusrun.training.data.images.decode import (
    Box,
    Cut,
    draws,
    middle,
    of_rank,
    random_crop,
    random_place,
    rectangles,
    squares,
)
from torusrun.training.data.named import build_digits
from torusrun.training.data.normal import IMAGENET, Normal
from torusrun.training.data.view import View

SIDES = st.integers(1, 1000)
NARROW, SQUARE, WIDE = (3 / 4, 4 / 3), (0.999, 1.001), (2 / 3, 3 / 2)
# (number, width, height, area, aspect, box): what torchvision 0.28's RandomResizedCrop.get_params returned when the
# numbers that it draws were those of random.Random(f"t{number}").
TORCHVISION = [
    (0, 657, 281, (0.5, 1.0), SQUARE, (188, 0, 469, 281)),
    (1, 777, 687, (0.08, 1.0), WIDE, (60, 324, 541, 683)),
    (2, 275, 684, (0.08, 1.0), NARROW, (58, 132, 265, 387)),
    (3, 135, 400, (0.999, 1.0), NARROW, (0, 110, 135, 290)),
    (4, 409, 576, (0.08, 1.0), SQUARE, (18, 110, 388, 480)),
    (5, 275, 33, (0.05, 0.9), WIDE, (112, 0, 162, 33)),
    (6, 306, 206, (0.999, 1.0), NARROW, (15, 0, 290, 206)),
    (7, 800, 93, (0.05, 0.9), SQUARE, (405, 0, 487, 82)),
    (8, 652, 475, (0.05, 0.9), NARROW, (118, 12, 283, 196)),
    (9, 21, 25, (0.05, 0.9), NARROW, (3, 2, 18, 21)),
]  # fmt: skip
# fast.ai: (mean width / height of a batch, size, (width, height) of its images)
CUTS = [
    (1.0, 288, (288, 288)),
    (1.5, 288, (432, 288)),
    (1.34, 128, (168, 128)),
    (0.75, 288, (288, 384)),
    (0.8, 128, (128, 160)),
]


@pytest.mark.parametrize(("number", "width", "height", "area", "aspect", "box"), TORCHVISION)
def test_crops_are_torchvisions(
    number: int, width: int, height: int, area: tuple[float, float], aspect: tuple[float, float], box: tuple[int, ...]
) -> None:
    assert random_crop(width, height, area, aspect, Random(f"t{number}").random) == box


@given(width=SIDES, height=SIDES, low=st.floats(0.01, 1), seed=st.integers(0, 99), sample=st.integers(0, 99))
def test_a_crop_is_inside_its_image(width: int, height: int, low: float, seed: int, sample: int) -> None:
    box = random_crop(width, height, (low, 1.0), NARROW, draws(seed, 3, sample))
    assert 0 <= box.left < box.right <= width and 0 <= box.top < box.bottom <= height
    assert box == random_crop(width, height, (low, 1.0), NARROW, draws(seed, 3, sample)), (
        "the same whenever it is asked"
    )


def test_crops_fill_the_ranges_of_area_and_aspect() -> None:
    boxes = [random_crop(1000, 1000, (0.25, 0.5), NARROW, draws(1, 0, sample)) for sample in range(400)]
    areas = [(box.right - box.left) * (box.bottom - box.top) / 1e6 for box in boxes]
    ratios = [(box.right - box.left) / (box.bottom - box.top) for box in boxes]
    assert 0.249 < min(areas) < 0.26 and 0.49 < max(areas) < 0.501
    assert 0.749 < min(ratios) < 0.76 and 1.31 < max(ratios) < 1.335
    assert abs(np.log(ratios).mean()) < 0.03, "wide and tall crops must be equally likely"


MARGINS = st.sampled_from([1.14, 256 / 224, 1.0])


@given(width=SIDES, height=SIDES, size=st.integers(8, 512), margin=MARGINS, sample=st.integers(0, 99))
def test_without_augment_crops_have_one_scale_and_no_distortion(
    width: int, height: int, size: int, margin: float, sample: int
) -> None:
    box = random_place(width, height, size, margin, draws(1, 0, sample))
    side = box.right - box.left
    assert side == pytest.approx(box.bottom - box.top)
    assert side == pytest.approx(min(width, height) * size / int(size * margin))
    assert box.left >= 0 and box.top >= 0 and box.right <= width + 1e-6 and box.bottom <= height + 1e-6


@pytest.mark.parametrize(("ratio", "size", "shape"), CUTS)
def test_rectangles_follow_the_mean_aspect_ratio_of_their_batch(
    ratio: float, size: int, shape: tuple[int, int]
) -> None:
    sizes = [(round(1000 * ratio) - 10, 1000), (round(1000 * ratio) + 10, 1000)]
    assert rectangles(sizes, size, 2) == [Cut([0, 1], *shape)]


def test_a_line_of_pixels_makes_no_batch_longer_than_four_squares() -> None:
    ordinary = [(500, 375)] * 3
    assert rectangles([*ordinary, (60_000, 1)], 288, 4) == [Cut([0, 1, 2, 3], 576, 288)]  # (3 * 4 / 3 + 4) / 4
    assert rectangles([(1, 60_000), (60_000, 1)], 288, 1) == [Cut([0], 288, 1152), Cut([1], 1152, 288)]
    assert rectangles([(400, 101), (101, 400)], 100, 1) == [Cut([1], 100, 392), Cut([0], 392, 100)]


@given(
    sizes=st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=60), batch=st.integers(1, 9), world=st.integers(1, 20),
)  # fmt: skip
def test_every_test_image_is_on_one_rank_and_cut_alike_on_any_number(
    sizes: list[tuple[int, int]], batch: int, world: int
) -> None:
    for cuts in (rectangles(sizes, 64, batch), squares(len(sizes), 64, batch)):
        shares = [list(of_rank(cuts, rank, world)) for rank in range(world)]
        shown = [(sample, cut[1:]) for share in shares for cut in share for sample in cut.samples]
        assert shown == [(sample, cut[1:]) for cut in cuts for sample in cut.samples]
        counts = [sum(len(cut.samples) for cut in share) for share in shares]
        assert max(counts) - min(counts) <= 1 and all(cut.samples for share in shares for cut in share)
    by_ratio = [sizes[sample][0] / sizes[sample][1] for cut in rectangles(sizes, 64, batch) for sample in cut.samples]
    assert all(one <= other for one, other in pairwise(by_ratio))


@pytest.fixture(scope="module")
def photograph(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    tree = write_tree(tmp_path_factory.mktemp("crops") / "tree", train=1, test=1)
    return (tree / "train" / CLASSES[0] / "000.jpg").read_bytes()


def pixels(image: Image.Image) -> np.ndarray:
    """As torchvision's ToTensor and Normalize make them."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return ((np.asarray(image) / 255 - mean) / deviation).transpose(2, 0, 1)


def normalized(made: np.ndarray) -> np.ndarray:
    return Normal(*IMAGENET)(torch.from_numpy(made)[None])[0].numpy()


def test_mlperfs_margin_gives_short_sides_of_256_for_224() -> None:
    assert [int(size * (256 / 224)) for size in (224, 112, 56, 28)] == [256, 128, 64, 32]
    box = middle(512, 1024, Cut([0], 224, 224), 224, 256 / 224)
    assert box == ((32, 288, 480, 736), 224, 224), "7/8 of the short side, in the middle"


@pytest.mark.parametrize("margin", [1.14, 8 / 7, 1.0])
@pytest.mark.parametrize("shape", [(40, 40), (64, 40), (200, 40)])
def test_a_test_image_is_resized_whole_and_cut_in_the_middle(
    photograph: bytes, shape: tuple[int, int], margin: float
) -> None:
    """In one step what torchvision's Resize and CenterCrop do in two; black where the cut is larger than the image."""
    image = Image.open(io.BytesIO(photograph))
    short = int(40 * margin)
    scale = short / min(image.size)
    whole = image.resize((int(image.width * scale + 1e-9), int(image.height * scale + 1e-9)), Image.Resampling.BILINEAR)
    wanted = Image.new("RGB", shape)
    wanted.paste(whole, (-round((whole.width - shape[0]) / 2), -round((whole.height - shape[1]) / 2)))
    made = np.empty((3, shape[1], shape[0]), np.uint8)
    decode.test_pixels(photograph, lambda w, h: middle(w, h, Cut([0], *shape), 40, margin), made)
    assert np.abs(normalized(made) - pixels(wanted)).max() < 1.01 / 255 / 0.224


@pytest.mark.parametrize("kind", ["PNG", "PPM", "BMP", "TIFF", "WEBP"])
def test_other_formats_than_jpeg_are_read(photograph: bytes, kind: str) -> None:
    image, written = Image.open(io.BytesIO(photograph)), io.BytesIO()
    image.convert("L" if kind == "PNG" else "RGB").save(written, kind)
    made = np.zeros((3, 8, 8), np.uint8)
    decode.train_pixels(written.getvalue(), lambda w, h: Box(0, 0, w, h), False, True, made)
    assert decode.size_of(written.getvalue()) == image.size and made.any()


def test_a_crop_is_scaled_and_flipped(photograph: bytes) -> None:
    image = Image.open(io.BytesIO(photograph))
    wide, tall = image.size
    made, flipped, drafted = (np.empty((3, 12, 12), np.uint8) for _ in range(3))
    whole = Box(0, 0, wide, tall)
    decode.train_pixels(photograph, lambda w, h: whole, False, False, made)
    decode.train_pixels(photograph, lambda w, h: whole, True, False, flipped)
    decode.train_pixels(photograph, lambda w, h: whole, False, True, drafted)
    assert np.allclose(normalized(made), pixels(image.resize((12, 12), Image.Resampling.BILINEAR)), atol=1e-5)
    assert np.array_equal(made[:, :, ::-1], flipped)
    assert 0 < np.abs(normalized(made) - normalized(drafted)).mean() < 0.15, (
        "decoded at a fraction of its size, it is nearly the same"
    )


SAMPLES = [(0, 5), (0, 6), (1, 5)]


def test_a_view_of_another_size_stretches_the_same_digits() -> None:
    digits = build_digits(seed=1)
    small, labels = digits.train_batch(SAMPLES)
    digits.look(View(size=16, test_size=12))
    large, same = digits.train_batch(SAMPLES)
    assert small.shape == (3, 1, 8, 8) and large.shape == (3, 1, 16, 16) and torch.equal(labels, same)
    halved = torch.nn.functional.avg_pool2d(large, 2)
    assert torch.corrcoef(torch.stack([small.flatten(), halved.flatten()]))[0, 1] > 0.97
    assert digits.test_shard(0, 2)[0].shape == (180, 1, 12, 12)


def test_without_augment_an_image_is_the_same_in_every_epoch() -> None:
    digits = build_digits(seed=1)
    moved = digits.train_batch([(epoch, 5) for epoch in range(8)])[0]
    assert not all(torch.equal(moved[0], each) for each in moved)
    digits.look(View(augment=False))
    still = digits.train_batch([(epoch, 5) for epoch in range(8)])[0]
    assert all(torch.equal(still[0], each) for each in still)


def test_the_default_view_changes_no_bit() -> None:
    digits, other = build_digits(seed=1), build_digits(seed=1)
    other.look(View())
    assert torch.equal(digits.train_batch(SAMPLES)[0], other.train_batch(SAMPLES)[0])
    assert torch.equal(digits.test_shard(0, 1)[0], other.test_shard(0, 1)[0])
