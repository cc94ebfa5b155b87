"""Image files, shards and caches in a bad state: one clear error, or the samples that are there, and never fewer."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.images_tree import write_tree
from torusrun.training.data import image_files, named
from torusrun.training.data.images import decode, index
from torusrun.training.data.images.decode import Box, Middle, random_crop
from torusrun.training.data.images.shards import open_shards
from torusrun.training.data.pack import main as pack_command
from torusrun.training.data.pack import pack
from torusrun.training.data.view import View
from torusrun.training.recipe.reading import ConfigError

TRAIN, TEST = 9, 6


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_tree(tmp_path / "tree", train=3, test=2)


@pytest.fixture
def shards(tree: Path) -> Path:
    pack(tree, tree.parent / "shards")
    return tree.parent / "shards"


def test_where_no_lock_can_be_made_the_index_is_made_each_time(tree: Path, capfd: pytest.CaptureFixture[str]) -> None:
    image_files.build_imagefolder(seed=1, root=str(tree))
    [kept] = index.folder().glob("*.index")
    kept.unlink()
    kept.with_suffix(".lock").unlink()
    kept.with_suffix(".lock").mkdir()
    assert image_files.build_imagefolder(seed=1, root=str(tree)).train_samples == TRAIN
    assert capfd.readouterr().err.startswith("training: the index of the data set cannot be kept")
    assert not list(index.folder().glob("*.index"))


@pytest.mark.parametrize("left", [b"", b"no header".ljust(2048, b"!")])
def test_a_shard_that_ends_early_is_an_error_and_not_a_smaller_data_set(shards: Path, left: bytes) -> None:
    path = shards / "train-000000.tar"
    with tarfile.open(path) as shard:
        fifth = shard.getmembers()[4].offset  # an image and its class each: two samples stay
    path.write_bytes(path.read_bytes()[:fifth] + left)
    with pytest.raises(
        ConfigError,
        match=rf"train-000000\.tar is not a complete tar file \(no "
        rf"header at byte {fifth}\)",
    ):
        image_files.build_tar_shards(seed=1, root=str(shards))


def test_a_shard_that_shrinks_under_a_run_is_not_a_corrupt_image(shards: Path) -> None:
    images = image_files.build_tar_shards(seed=1, root=str(shards))
    os.truncate(shards / "train-000000.tar", 2000)
    with pytest.raises(OSError, match="a shard ends before byte"):
        images.train_batch([(0, 5)])


@pytest.mark.parametrize("old", ["a picture", "no picture"])
def test_a_test_image_that_has_another_size_than_was_measured_is_an_error_once(tree: Path, old: str) -> None:
    def tested() -> int:
        images = image_files.build_imagefolder(seed=1, root=str(tree))
        images.look(View(test_size=16, rectangular=True))
        return sum(len(labels) for rank in range(2) for _, labels in images.test_batches(rank, 2))

    path, listed = tree / "val/flower/001.jpg", (tree / "val/flower").stat().st_mtime_ns
    if old == "no picture":
        path.write_bytes(b"")
    assert tested() == (TEST if old == "a picture" else TEST - 1)
    Image.new("RGB", (90, 30)).save(path)
    assert (tree / "val/flower").stat().st_mtime_ns == listed
    with pytest.raises(ConfigError, match=r"val/flower/001\.jpg is 90 x 30 pixels and was .* resume the run"):
        tested()
    assert tested() == TEST


def test_a_tree_is_packed_whole_or_not_at_all(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = tree / "val/flower/001.jpg"
    image_files.build_imagefolder(seed=1, root=str(tree))
    lost.unlink()
    lost.symlink_to("nowhere")
    with pytest.raises(OSError, match="No such file"):
        pack(tree, tmp_path / "shards")
    assert not list((tmp_path / "shards").iterdir())
    with pytest.raises(SystemExit):
        pack_command([str(tree), str(tmp_path / "shards"), "--shard-mb", "0"])
    assert "--shard-mb must be at least 1" in capsys.readouterr().err
    shutil.rmtree(tree / "val/flower")
    pack(tree, tmp_path / "shards", shard_bytes=1)
    assert len(list((tmp_path / "shards").glob("train-*.tar"))) == TRAIN, "a shard has one image at least"
    assert len(open_shards(tmp_path / "shards").train) == TRAIN


def test_a_class_that_is_a_link_to_nowhere_is_an_error_and_no_class_less(tree: Path) -> None:
    for half in ("train", "val"):
        moved = (tree / half / "china").rename(tree.parent / half)
        (tree / half / "china").symlink_to(moved)
    (tree / "train/README").symlink_to(tree / "val/flower/000.jpg")  # a link to a file is no class
    assert image_files.build_imagefolder(seed=1, root=str(tree)).classes == 3
    for half in ("train", "val"):
        (tree.parent / half).rename(tree.parent / f"{half}-elsewhere")
    with pytest.raises(
        ConfigError, match=r"root: \S*/tree/train/china is a link to \S*/train, which does not exist; correct"
    ):
        image_files.build_imagefolder(seed=1, root=str(tree))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_images_of_16_bits_are_refused_and_not_white(kind: str) -> None:
    written = io.BytesIO()
    Image.fromarray(np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)).save(written, kind)
    with pytest.raises(decode.Corrupt, match="more than 8 bits .* convert it to 8"):
        decode.train_pixels(
            written.getvalue(), lambda w, h: Box(0, 0, w, h), False, True, np.empty((3, 8, 8), np.float32)
        )


@pytest.mark.parametrize("aspect", [(0.2, 0.3), (3.0, 4.0)])
def test_an_image_of_one_pixel_has_a_crop_of_any_aspect(aspect: tuple[float, float]) -> None:
    assert random_crop(1, 1, (0.5, 1.0), aspect, lambda: 0.5) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    "option", [{"samples": 0}, {"classes": "ten"}, {"channels": -1}, {"test_samples": 2.5}, {"classes": True}]
)
def test_numbers_of_synthetic_images_are_checked(option: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"^train\.data\.options\.{next(iter(option))} must be a whole number"):
        named.build_synthetic(seed=1, **option)


def test_an_image_for_which_there_is_no_memory_is_not_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    file, into = io.BytesIO(), np.empty((3, 8, 8), np.uint8)
    Image.new("RGB", (16, 16)).save(file, "PNG")

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "resize", full)
    with pytest.raises(MemoryError):
        decode.train_pixels(file.getvalue(), lambda w, h: Box(0, 0, w, h), False, False, into)
    with pytest.raises(MemoryError):
        decode.test_pixels(file.getvalue(), lambda w, h: Middle(Box(0, 0, w, h), 8, 8), into)
    monkeypatch.setattr(Image, "open", full)
    with pytest.raises(MemoryError):
        decode.size_of(file.getvalue())


KINDS = {"symlink": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shards").mkdir()
    for half in ("train", "val"):
        write(tmp_path / f"shards/{half}-0.tar", "a.jpg", "a.cls", "b.jpg", "b.cls")
    return tmp_path / "shards"


def write(path: Path, *names: str, link: bytes | None = None) -> None:
    """A shard with members of these names; with `link`, the later half of them are links to the first."""
    with tarfile.open(path, "w") as file:
        for number, name in enumerate(names):
            member = tarfile.TarInfo(name)
            if link and number >= len(names) // 2:
                member.type, member.linkname = link, f"a{Path(name).suffix}"
            else:
                member.size = 1
            file.addfile(member, io.BytesIO(b"0"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_in_a_shard_is_an_error_and_no_sample_less(root: Path, kind: str) -> None:
    write(root / "train-1.tar", "a.jpg", "a.cls", "b.jpg", "b.cls", link=KINDS[kind])
    with pytest.raises(ConfigError, match=r"/train-1\.tar: b\.jpg is a link to a\.jpg, .*--hard-dereference\)$"):
        open_shards(root)


def test_what_follows_the_end_of_a_shard_is_an_error_and_not_left_out(root: Path) -> None:
    shard, whole = root / "train-0.tar", (root / "train-0.tar").read_bytes()
    shard.write_bytes(whole + bytes(600_000))  # as with a large --blocking-factor
    assert len(open_shards(root).train) == 2
    shard.write_bytes(whole + whole)
    with pytest.raises(ConfigError, match=r"/train-0\.tar continues after the end .* byte 4096.*tar --concatenate"):
        open_shards(root)
    os.truncate(shard, 4096)
    os.truncate(shard, 1 << 34)  # a hole, which must not be read
    with pytest.raises(ConfigError, match=r"/train-0\.tar has \d+ bytes after the end .* copy or make it again$"):
        open_shards(root)


def test_a_key_with_the_same_extension_twice_is_an_error(root: Path) -> None:
    write(root / "val-0.tar", "x/a.jpg", "x/a.cls", "x/a.JPG", "x/a.cls")
    with pytest.raises(ConfigError, match=r"/val-0\.tar: x/a\.JPG follows x/a\.jpg, with the same key and extension"):
        open_shards(root)


def test_a_file_that_is_stored_with_holes_is_an_error(root: Path) -> None:
    folder = root.parent / "files"
    folder.mkdir()
    (folder / "c.cls").write_text("0")
    with open(folder / "c.jpg", "wb") as image:
        image.write(b"begin")
        image.truncate(1 << 20)
    subprocess.run(["tar", "--sparse", "-cf", root / "train-1.tar", "-C", folder, "c.jpg", "c.cls"], check=True)
    with pytest.raises(ConfigError, match=r"/train-1\.tar: c\.jpg is stored without its zeros"):
        open_shards(root)
