"""Tar files of which a part would be missing without a word: one error that names the shard."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from torusrun.training.data.images.shards import open_shards
from torusrun.training.recipe.reading import ConfigError

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
