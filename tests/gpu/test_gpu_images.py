"""Images travel to the device as bytes and become numbers there: those that the host would compute, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.images_tree import write_tree
from torusrun.training.collectives import device as devices
from torusrun.training.config import Ranks
from torusrun.training.data import image_files
from torusrun.training.data.feed import Feed
from torusrun.training.data.normal import IMAGENET
from torusrun.training.data.view import View
from torusrun.training.progress import Progress
from torusrun.training.recipe.protocols import DataSet, complete
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, Train
from torusrun.training.schedule import Course

BATCH, CLASSES = 6, 2


def on_host(images: torch.Tensor) -> torch.Tensor:
    """(pixel - mean) / deviation in numpy's float32."""
    mean, deviation = (np.array(each, np.float32)[:, None, None] * np.float32(255) for each in IMAGENET)
    return torch.from_numpy((images.numpy().astype(np.float32) - mean) / deviation)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root: Path = write_tree(tmp_path / "tree")
    return root


def test_a_batch_on_the_device_has_the_bits_of_the_host(device: torch.device, tree: Path) -> None:
    train = Train(data=DataKeys("imagefolder", {"root": str(tree)}, size=16), batch=BATCH, epochs=2)
    images: Any = image_files.build_imagefolder(seed=1, root=str(tree))
    feed = Feed(
        complete(images, DataSet), Course(train, images.train_samples, lambda _: 0.1), Ranks(0, 1, 0), train, device
    )
    found, labels = feed.alone(Progress())
    sent, classes = images.train_batch(feed.samples(Progress()))
    assert sent.dtype == torch.uint8, "bytes travel, a quarter of fp32"
    assert found.device.type == labels.device.type == device.type and found.dtype == torch.float32
    assert torch.equal(found.cpu(), on_host(sent))
    assert torch.equal(labels.cpu(), classes)


def test_a_batch_travels_while_the_device_computes(cuda: torch.device) -> None:
    train = Train(batch=BATCH, epochs=2)
    feed = Feed(
        complete(cast(DataSet, object()), DataSet), Course(train, BATCH, lambda _: 0.1), Ranks(0, 1, 0), train, cuda
    )
    images = torch.arange(100_000)
    feed._moved(images)  # takes the memory for copies, which may wait for the device
    torch.cuda._sleep(2_000_000_000)  # about a second
    moved = feed._moved(images)
    assert feed._copies is not None
    feed._copies.synchronize()
    assert not torch.cuda.current_stream().query(), "the copy waited for the computation"
    assert torch.equal(moved.cpu(), images)


def test_test_images_travel_as_bytes_too(device: torch.device, tree: Path) -> None:
    train = Train(data=DataKeys("imagefolder", {"root": str(tree)}, size=16), batch=BATCH, epochs=2)
    images: Any = image_files.build_imagefolder(seed=1, root=str(tree))
    images.look(View(size=16))
    feed = Feed(
        complete(images, DataSet), Course(train, images.train_samples, lambda _: 0.1), Ranks(0, 1, 0), train, device
    )
    for (found, labels), (sent, classes) in zip(feed.test_batches(), images.test_batches(0, 1), strict=True):
        assert sent.dtype == torch.uint8 and torch.equal(found.cpu(), on_host(sent))
        assert torch.equal(labels.cpu(), classes)


class OnlyBytes:
    """A user's own data set whose batches nobody normalizes."""

    train_samples, test_samples, classes, shape = 12, 1, 2, (3, 4, 4)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(samples), *self.shape, dtype=torch.uint8), torch.zeros(len(samples), dtype=torch.int64)


def test_bytes_that_nobody_normalizes_are_refused_by_name(device: torch.device) -> None:
    train, data = Train(batch=BATCH, epochs=1), complete(cast(DataSet, OnlyBytes()), DataSet)
    feed = Feed(data, Course(train, 12, lambda _: 0.1), Ranks(0, 1, 0), train, device)
    with pytest.raises(ConfigError, match=r"its batches are bytes.*normalize_on_device\(inputs\)"):
        feed.take(Progress())


def test_a_card_tries_algorithms_for_training_and_rounds_to_tf32_if_asked(device: torch.device) -> None:
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.allow_tf32, torch.get_float32_matmul_precision(), torch.get_num_threads()
    determinism = torch.get_deterministic_debug_mode()
    try:
        for precision, tf32 in (("fp32", False), ("tf32", True), ("bf16", False)):
            devices.prepare(device.type, 0, precision)
            if device.type == "cuda":
                assert cudnn.benchmark and cudnn.allow_tf32 == tf32
                assert (torch.get_float32_matmul_precision() == "high") == tf32
            tried = cudnn.benchmark
            with devices.without_trials():
                assert not cudnn.benchmark, "test images have many shapes, each of which is seen once or twice"
            assert cudnn.benchmark == tried
    finally:
        cudnn.benchmark, cudnn.allow_tf32 = before[:2]
        torch.set_float32_matmul_precision(before[2])
        torch.set_num_threads(before[3])
        torch.set_deterministic_debug_mode(determinism)
