"""`torusrun image` on a cache that holds one image."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.containers.test_cache import KEY, entry
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage

SITE = "scheduler: local\nlauncher: spawn\ncontainer: {{cache: {folder}/images}}\n"


@pytest.fixture
def kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> CachedImage:
    (home / "site.yaml").write_text(SITE.format(folder=home))
    monkeypatch.chdir(home)
    return entry(Cache(home / "images"), content=bytes(3 << 20))


def image(*words: str) -> int:
    return main(["image", *words, "--site", "./site.yaml"])


def test_an_image_is_listed_shown_verified_and_removed(kept: CachedImage, capsys: pytest.CaptureFixture[str]) -> None:
    assert image("ls") == 0
    titles, row = capsys.readouterr().out.splitlines()
    assert titles.split() == ["KEY", "NAME", "VARIANT", "MIB", "BUILT", "BY"]
    assert row.split()[:3] == [KEY[:12], "mine", "3"] and row.endswith("fake 1.0")
    assert image("ls", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["images"]
    assert (listed["key"], listed["size_bytes"], listed["path"]) == (KEY, 3 << 20, str(kept.path))
    assert image("inspect", "mine") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["key"] == KEY and "lock" not in shown
    assert image("verify", "mine") == 0 and "unchanged since it was built" in capsys.readouterr().out
    assert image("rm", "aaaa") == 0 and not kept.path.exists()
    capsys.readouterr()
    assert image("ls") == 0
    assert re.fullmatch(r"no images in .*; `torusrun image build NAME` makes one\n", capsys.readouterr().out)


def test_images_of_one_name_are_distinguished(kept: CachedImage, capsys: pytest.CaptureFixture[str]) -> None:
    cache, labels = Cache(kept.path.parent), {"torusrun.variant": "host-online"}
    locked = "pip install -r /mnt/requirements/locked-0.txt"
    for key, changes in (("b" * 64, {"labels": labels}), ("c" * 64, {"definition": locked})):
        finished = cache.working(key)
        finished.write_bytes(b"image")
        cache.publish(replace(kept, key=key, path=cache.image(key), **changes), finished)
    assert image("ls") == 0
    rows = {line[0]: line[12:].split() for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows["a"][:2] == ["mine", "3"] and rows["b"][:3] == ["mine", "host-online", "3"]
    assert rows["c"][:3] == ["mine", "locked", "3"]


def test_a_changed_image_is_the_sites_failure(kept: CachedImage, capsys: pytest.CaptureFixture[str]) -> None:
    kept.path.write_bytes(b"other")
    assert image("verify", "mine") == 3 and "its SHA-256 is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["inspect"], 2, "`torusrun image inspect` needs an image; `torusrun image ls` lists them"),
        (["rm", "other"], 2, "there is no image 'other'"),
        (["render", "nosuch"], 2, "nosuch"),
        (["ls", "--offline"], 2, "`torusrun image ls` takes no --offline; it is for build"),
    ],
)
def test_what_cannot_be_done_with_an_image_is_one_error(
    words: list[str], code: int, says: str, kept: CachedImage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert image(*words) == code
    assert says in capsys.readouterr().err and kept.path.exists()
