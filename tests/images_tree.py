"""A small tree of real JPEG files of many aspect ratios: parts of scikit-learn's two photographs, and its digits."""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from random import Random

from PIL import Image

CLASSES = ("china", "digits", "flower")
SIDES = (24, 160)  # pixels
QUALITY = 90


def write_tree(root: Path, train: int = 12, test: int = 5) -> Path:
    """ROOT/train/CLASS and ROOT/val/CLASS with so many images of each class."""
    draw = Random("images")
    for half, count in (("train", train), ("val", test)):
        for name in CLASSES:
            folder = root / half / name
            folder.mkdir(parents=True)
            for number in range(count):
                _picture(name, draw).save(folder / f"{number:03d}.jpg", quality=QUALITY)
    return root


def _picture(name: str, draw: Random) -> Image.Image:
    width, height = draw.randint(*SIDES), draw.randint(*SIDES)
    if name == "digits":
        digit = Image.new("L", (8, 8))
        digit.putdata([int(15 * value) for value in draw.choice(_digits())])
        return digit.resize((width, height))
    photograph = _photograph(name)
    left, top = draw.randint(0, photograph.width - 320), draw.randint(0, photograph.height - 320)
    return photograph.crop((left, top, left + 2 * width, top + 2 * height)).resize((width, height))


@lru_cache(maxsize=2)
def _photograph(name: str) -> Image.Image:
    return Image.open(_datasets() / "images" / f"{name}.jpg").convert("RGB")


@lru_cache(maxsize=1)
def _digits() -> list[list[float]]:
    with gzip.open(_datasets() / "data" / "digits.csv.gz", "rt") as file:
        return [[float(value) for value in line.split(",")[:64]] for line, _ in zip(file, range(100), strict=False)]


def _datasets() -> Path:
    found = find_spec("sklearn")
    assert found and found.origin
    return Path(found.origin).parent / "datasets"
