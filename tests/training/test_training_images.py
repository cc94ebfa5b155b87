"""Images in folders and in shards: the same samples, whoever asks, in whatever order."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import machine
from tests.images_tree import CLASSES, write_tree
from torusrun.training.data import image_files, named
from torusrun.training.data.image_files import open_trees
from torusrun.training.data.images import index
from torusrun.training.data.images.dataset import Images
from torusrun.training.data.pack import main as pack_command
from torusrun.training.data.pack import pack
from torusrun.training.data.view import View
from torusrun.training.recipe.facts import DataFacts, data_facts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, Train

TRAIN, TEST = 36, 15
SHARD_BYTES = 40_000  # some images to a shard
SMALL = View(size=24, test_size=32)
ALL = [(epoch, sample) for epoch in range(2) for sample in range(TRAIN)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tree(tmp_path_factory.mktemp("images") / "tree")


@pytest.fixture
def tree(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree that a test may change."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(original, tmp_path / "tree"))


@pytest.fixture
def shards(tree: Path, tmp_path: Path) -> Path:
    pack(tree, tmp_path / "shards", SHARD_BYTES)
    return tmp_path / "shards"


def folder(root: Path, **options: Any) -> Images:
    images = image_files.build_imagefolder(seed=1, root=str(root), **options)
    images.look(SMALL)
    return images


def packed(root: Path, **options: Any) -> Images:
    images = image_files.build_tar_shards(seed=1, root=str(root), **options)
    images.look(SMALL)
    return images


def all_tested(images: Images, world: int) -> Counter[tuple[tuple[int, ...], int]]:
    """(shape, label) of all test images, over all ranks."""
    batches = [batch for rank in range(world) for batch in images.test_batches(rank, world)]
    return Counter((tuple(image.shape), int(label)) for each in batches for image, label in zip(*each, strict=True))


def test_a_folder_and_its_shards_hold_the_same_samples(tree: Path, shards: Path) -> None:
    here, there = folder(tree), packed(shards)
    for images in (here, there):
        assert (images.train_samples, images.test_samples, images.classes) == (TRAIN, TEST, len(CLASSES))
    one, other = here.train_batch(ALL), there.train_batch(ALL)
    assert one[0].shape == (len(ALL), 3, 24, 24) and one[0].dtype == torch.uint8
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert one[1].tolist() == [sample // 12 for _, sample in ALL]
    (shown, labels), (same, alike) = (next(iter(each.test_batches(1, 2))) for each in (here, there))
    assert torch.equal(shown, same) and torch.equal(labels, alike) and len(labels) == 8
    assert here._train.name(13).endswith("train/digits/001.jpg")
    assert there._train.name(13).endswith("train-000001.tar: 00000013.jpg")


def test_a_tree_is_packed_by_a_command(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pack_command(["tree", "shards"]) == 0
    assert sorted(os.listdir("shards")) == ["train-000000.tar", "val-000000.tar"]
    assert pack_command(["tree", "shards"]) == 2 and "shards is not empty" in capsys.readouterr().err
    assert pack_command(["none", "other"]) == 2 and "there is no" in capsys.readouterr().err


def test_a_sample_depends_on_seed_epoch_and_number_alone(tree: Path) -> None:
    images, other = folder(tree), folder(tree)
    other.use(1)
    whole = images.train_batch(ALL)[0]
    backwards = other.train_batch(ALL[::-1])[0].flip(0)
    assert torch.equal(whole, backwards)
    assert not torch.equal(whole[:TRAIN], whole[TRAIN:]), "each epoch must crop anew"
    other = image_files.build_imagefolder(seed=2, root=str(tree)).train_batch(ALL)[0]
    assert not torch.equal(whole, other[:, :, :24, :24])


def test_what_was_prefetched_is_the_same_and_does_not_outlive_its_view(tree: Path) -> None:
    images = folder(tree)
    plain = images.train_batch(ALL)[0]
    images.prefetch(ALL)
    assert torch.equal(images.train_batch(ALL)[0], plain)
    images.prefetch(ALL)
    images.look(SMALL._replace(size=16))
    assert images.train_batch(ALL)[0].shape[-2:] == (16, 16)
    images.prefetch(ALL[:3])
    images.prefetch(ALL[3:5])
    assert images.train_batch(ALL[:3])[0].shape[0] == 3
    images.look(SMALL._replace(augment=False))
    assert not torch.equal(images.train_batch(ALL)[0], plain)


@pytest.mark.parametrize("rectangular", [False, True])
def test_every_test_image_is_tested_once_on_any_number_of_ranks(tree: Path, rectangular: bool) -> None:
    images = folder(tree, test_batch=4)
    images.look(SMALL._replace(rectangular=rectangular))
    alone = all_tested(images, 1)
    assert sum(alone.values()) == TEST and Counter(label for _, label in alone.elements()) == {0: 5, 1: 5, 2: 5}
    assert len({shape for shape, _ in alone}) == (4 if rectangular else 1)
    for world in (2, 4, 7, 20):
        assert all_tested(images, world) == alone
        assert any(not list(images.test_batches(rank, world)) for rank in range(world)) == (world > TEST)


def test_corrupt_images_are_named_and_replaced_by_the_next_good_one(tree: Path, tmp_path: Path) -> None:
    good = folder(tree).train_batch([(0, 4)])
    truncated, empty, text = (tree / "train/china" / name for name in ("001.jpg", "002.jpg", "003.jpg"))
    truncated.write_bytes(truncated.read_bytes()[:-300])
    empty.write_bytes(b"")
    text.write_text("<html>502 Bad Gateway</html>")
    (tree / "val/flower/000.jpg").write_bytes(b"")
    pack(tree, tmp_path / "shards", SHARD_BYTES)
    for images in (folder(tree), packed(tmp_path / "shards")):
        whole = images.train_batch(ALL[:TRAIN])
        assert torch.equal(torch.cat([images.train_batch([each])[0] for each in ALL[:TRAIN]]), whole[0])
        assert all(torch.isfinite(whole[0]).flatten()) and whole[1].tolist() == [n // 12 for n in range(TRAIN)]
        for sample in (1, 2, 3):
            assert images.train_batch([(0, sample)])[1].tolist() == good[1].tolist()
        assert sum(all_tested(images, 2).values()) == TEST - 1
        assert all(len(labels) for rank in range(TEST) for _, labels in images.test_batches(rank, TEST))
        found = sorted(line.rpartition(": ")[::2] for line in images.problems())
        assert [reason for _, reason in found][1:] == ["not an image"] * 3 and "truncated" in found[0][1], found
        places = [place.removeprefix(f"{tmp_path}/") for place, _ in found]
        assert places[0] in ("tree/train/china/001.jpg", "shards/train-000000.tar: 00000001.jpg"), places


def test_too_many_corrupt_images_are_one_error(tree: Path) -> None:
    (tree / "train/china/001.jpg").write_bytes(b"")
    with pytest.raises(
        ConfigError, match=r"^train\.data\.options\.max_corrupt: more than 0 of 36 images .*001.jpg \(not an im"
    ):
        folder(tree, max_corrupt=0.0).train_batch(ALL)
    for path in tree.glob("train/*/*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(ConfigError, match="max_corrupt: more than 10 of 36 images .*delete them"):
        folder(tree).train_batch(ALL)
    with pytest.raises(ConfigError, match="max_corrupt: all 36 images"):
        folder(tree, max_corrupt=1.0).train_batch(ALL)


def test_a_folder_is_listed_once_until_it_changes(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was listed again")

    folder(tree)
    with monkeypatch.context() as patched:
        patched.setattr("torusrun.training.data.image_files._listed", refuse)
        assert folder(tree).train_samples == TRAIN
    (tree / "train/china/001.jpg").unlink()
    assert folder(tree).train_samples == TRAIN - 1
    kept = next(index.folder().glob("imagefolder-*.index"))
    kept.write_bytes(kept.read_bytes()[:-1])
    assert folder(tree).train_samples == TRAIN - 1, "a damaged index is made again"


@pytest.mark.needs("users")
@pytest.mark.parametrize("whose", ["index", "folder"])
def test_an_index_that_a_stranger_may_have_written_is_not_read(
    whose: str, tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It could name any file of the victim; whose the images are does not matter."""
    folder(tree)
    (planted,) = index.folder().glob("imagefolder-*.index")
    os.chown(planted if whose == "index" else planted.parent, 4321, 4321)
    for path in (tree, *tree.rglob("*")):
        os.chown(path, 4321, 4321)
    listed, asked = image_files._listed, []
    monkeypatch.setattr(image_files, "_listed", lambda *given: (asked.append(1), listed(*given))[1])
    assert folder(tree).train_samples == folder(tree).train_samples == TRAIN
    if whose == "index":
        assert len(asked) == 1 and planted.stat().st_uid == 0, "the user's own takes its place"
    else:
        assert len(asked) == 2 and "belongs to user 4321 and not to user 0" in capfd.readouterr().err


def test_samples_of_other_classes_are_another_data_set(tree: Path, shards: Path, tmp_path: Path) -> None:
    first = folder(tree).identity
    copy = shutil.copytree(tree, tmp_path / "copy")
    assert folder(copy).identity == first, "it does not matter where the files lie"
    for half in ("train", "val"):
        (copy / half / "china").rename(copy / half / "zz")
    assert folder(copy).identity != first, "now every class has another number"
    assert packed(shards).identity == packed(shutil.copytree(shards, tmp_path / "shards-copy")).identity


def test_where_no_index_can_be_kept_it_is_made_each_time(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert folder(tree).train_samples == TRAIN
    assert capfd.readouterr().err.startswith("training: the index of the data set cannot be kept")


def emptied(root: Path) -> None:
    shutil.rmtree(root / "train")
    (root / "train").mkdir()


def emptied_class(root: Path) -> None:
    shutil.rmtree(root / "train/flower")
    (root / "train/flower").mkdir()


def only_in_val(root: Path) -> None:
    shutil.rmtree(root / "train/flower")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shutil.rmtree, "train.data.options.root: there is no {root}/train; name the folder by its path on the ranks"),
        (lambda root: shutil.rmtree(root / "val"), "train.data.options.root: there is no {root}/val; name"),
        (emptied, "train.data.options.root: {root}/train has no folders; make one for each class"),
        (emptied_class, "train.data.options.root: {root}/train/flower holds no images (.jpg, "),
        (
            only_in_val,
            "train.data.options.root: {root}/val/flower is a class that {root}/train does not have; remove it",
        ),
    ],
)
def test_a_folder_of_another_layout_is_one_line(tree: Path, change: Any, said: str) -> None:
    change(tree)
    with pytest.raises(ConfigError) as raised:
        image_files.build_imagefolder(seed=1, root=str(tree))
    assert str(raised.value).startswith(said.format(root=tree)) and "\n" not in str(raised.value)


def test_a_folder_that_may_not_be_read_is_one_line(tree: Path) -> None:
    (tree / "train").chmod(0)
    me = os.geteuid()
    try:
        if not machine.why_not("read"):
            os.seteuid(65534)
        with pytest.raises(ConfigError, match=r"^train\.data\.options\.root: .*/train may not be read by this user"):
            open_trees(tree)
    finally:
        os.seteuid(me)
        (tree / "train").chmod(0o755)


def tar(path: Path, *members: tuple[str, bytes]) -> None:
    with tarfile.open(path, "w") as file:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))


def dangling(root: Path) -> None:
    (root / "val-000000.tar").unlink()
    (root / "val-000000.tar").symlink_to("/not/there")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: shutil.rmtree(root), "there is no {root}; name"),
        (lambda root: (root / "val-000000.tar").rename(root / "other.tar"), ""),
        (lambda root: [each.unlink() for each in root.glob("val-*")], "{root} has no val-*.tar; name the folder"),
        (lambda root: tar(root / "train-000000.tar"), ""),
        (dangling, "{root}/val-000000.tar is a link to /not/there, which does not exist; correct or remove the link"),
        (
            lambda root: (root / "train-000000.tar").write_bytes(b"x" * 2000),
            "{root}/train-000000.tar is not a complete tar file",
        ),
        (lambda root: os.truncate(root / "train-000000.tar", 1000), "{root}/train-000000.tar "),
        (
            lambda root: tar(root / "val-000000.tar", ("a.jpg", b"x")),
            "{root}/val-000000.tar: /a must have one image and",
        ),
        (
            lambda root: tar(root / "val-000000.tar", ("a.jpg", b"x"), ("a.cls", b"cat")),
            "{root}/val-000000.tar: a.cls must",
        ),
        (
            lambda root: tar(root / "val-000000.tar", ("a.jpg", b"x"), ("a.cls", b"7")),
            "{root}/val-*.tar have class 7, and",
        ),
    ],
)
def test_shards_of_another_convention_are_one_line(shards: Path, change: Any, said: str) -> None:
    change(shards)
    if not said:
        assert image_files.build_tar_shards(seed=1, root=str(shards)).classes == len(CLASSES)
        return
    with pytest.raises(ConfigError) as raised:
        image_files.build_tar_shards(seed=1, root=str(shards))
    assert str(raised.value).startswith(f"train.data.options.root: {said}".format(root=shards))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["imagefolder", "tar-shards"])
def test_the_nodes_copy_is_read_by_the_index_of_its_source(
    kind: str, tree: Path, shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On each node, in a folder of another name, without a look at the shared disk."""
    root, build = {"imagefolder": (tree, folder), "tar-shards": (shards, packed)}[kind]

    def seen() -> tuple[Images, torch.Tensor, Any, dict[Path, int]]:
        images = build(root)
        images.look(View(size=24, test_size=32, rectangular=True))
        indexes = {path: path.stat().st_ino for path in index.folder().glob("*.index")}
        return images, images.train_batch(ALL)[0], all_tested(images, 2), indexes

    plain, trained, tested, indexes = seen()
    copy = Path(shutil.copytree(root, tmp_path / "disk" / "copy"))
    (tmp_path / "disk" / "paths.json").write_text(json.dumps({str(root): str(copy)}))
    monkeypatch.setenv("TORUSRUN_STAGED", str(tmp_path / "disk"))
    root.rename(tmp_path / "away")
    staged, *same = seen()
    assert torch.equal(same[0], trained) and same[1:] == [tested, indexes]
    assert staged._train.name(13).startswith(f"{copy}/") and staged.identity == plain.identity
    (copy.parent / "paths.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"TORUSRUN_STAGED: .* is not a list of copies"):
        build(root)


def test_predictions_ask_the_options_and_then_the_files(tree: Path, shards: Path) -> None:
    def known(name: str, **options: Any) -> DataFacts | None:
        return data_facts(Train(data=DataKeys(name, options, size=32)))

    stated = {"samples": 1_281_167, "test_samples": 50_000, "classes": 1000}
    for name in ("imagefolder", "tar-shards"):
        assert known(name, root="/not/here", **stated) == DataFacts(1_281_167, 50_000, 1000, (3, 32, 32))
        assert known(name, root="/not/here") is None and known(name) is None
    assert known("imagefolder", root=str(tree)) == DataFacts(TRAIN, TEST, 3, (3, 32, 32))
    assert known("tar-shards", root=str(shards)) is None, "the headers of all shards are not read for a prediction"
    packed(shards)
    assert known("tar-shards", root=str(shards)) == DataFacts(TRAIN, TEST, 3, (3, 32, 32))
    assert known("digits") == DataFacts(1437, 360, 10, (1, 32, 32))
    assert known("synthetic", classes=10) == DataFacts(100_000, 1000, 10, (3, 32, 32))


def test_counts_in_the_options_are_checked(tree: Path) -> None:
    folder(tree, samples=TRAIN, test_samples=TEST, classes=3)
    with pytest.raises(ConfigError, match=r"^train\.data\.options\.classes: it is 1000, but .* has 3"):
        folder(tree, classes=1000)
    with pytest.raises(ConfigError, match=rf"^train\.data\.options\.samples must be a whole number, not '{TRAIN}'$"):
        folder(tree, samples=str(TRAIN))
    with pytest.raises(ConfigError, match="must be the absolute path"):
        folder(Path("here"))
    with pytest.raises(ConfigError, match=r"^train\.data\.options\.root is missing"):
        image_files.build_imagefolder(seed=1)


@pytest.mark.parametrize("option", [{"max_corrupt": 2.0}, {"max_corrupt": "few"}, {"test_batch": 0}, {"draft": 1}])
def test_options_are_checked(tree: Path, option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^train\.data\.options\.{next(iter(option))} must be .*, not "):
        folder(tree, **option)


def test_synthetic_images_are_functions_of_seed_and_sample() -> None:
    images, other = (named.build_synthetic(seed=3, samples=500, classes=7) for _ in range(2))
    for each in (images, other):
        each.look(View(size=16, test_size=20))
    samples = [(0, 3), (4, 66), (0, 67), (9, 3)]
    other.prefetch(samples)
    (one, labels), (two, same) = images.train_batch(samples), other.train_batch(samples)
    assert one.shape == (4, 3, 16, 16) and torch.equal(one, two) and torch.equal(labels, same)
    assert torch.equal(one[0], one[3]) and not torch.equal(one[0], one[1]) and labels.max() < 7
    tested = [batch.shape for batch, _ in images.test_batches(1, 4)]
    assert tested == [(64, 3, 20, 20)] * 3 + [(58, 3, 20, 20)]
