"""The cache: what makes a key, and that an image is there whole or not at all."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.containers import lock
from orchestrator.containers.cache import Cache, Entry
from orchestrator.containers.inputs import Inputs, base_sum, collect, file_sum, sum_of
from orchestrator.containers.recipe import Base, File, Python, Recipe
from orchestrator.errors import SiteError, UserError

KEY = "a" * 64


def entry(cache: Cache, key: str = KEY, content: bytes = b"image", name: str = "mine") -> Entry:
    cache.make()
    finished = cache.working(key)
    finished.write_bytes(content)
    made = Entry(key, cache.image(key), name, "Bootstrap: x", file_sum(finished), len(content), 1.0, 2.0, "fake 1.0")
    return cache.publish(made, finished)


def test_an_entry_comes_back_as_it_went_in(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "images")
    made = entry(cache)
    assert cache.get(KEY) == made and cache.entries() == [made]
    assert {p.name for p in cache.folder.iterdir()} == {f"{KEY}.sif", f"{KEY}.json"}
    assert cache.verify(made) is None


def test_an_image_is_found_by_name_and_by_the_beginning_of_its_key(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    one, two = entry(cache), entry(cache, "b" * 64, name="other")
    assert cache.find("mine") == one and cache.find("bbbb") == two and cache.find(str(two.path)) == two
    entry(cache, "c" * 64)
    with pytest.raises(UserError, match=r"'mine' is 2 images; name one by its key: \w{12}, \w{12}"):
        cache.find("mine")
    with pytest.raises(UserError, match="there is no image 'x'"):
        cache.find("x")


def test_a_changed_image_does_not_verify(tmp_path: Path) -> None:
    made = entry(cache := Cache(tmp_path))
    made.path.write_bytes(b"other")
    assert "its sum is" in str(cache.verify(made))
    made.path.unlink()
    assert "cannot be read" in str(cache.verify(made))


def test_half_an_entry_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry(cache).path.unlink()
    assert cache.get(KEY) is None and cache.entries() == []
    entry(cache)
    cache.sidecar(KEY).unlink()
    assert cache.get(KEY) is None
    cache.sidecar(KEY).write_text("{")
    with pytest.raises(SiteError, match="this is damaged"):
        cache.get(KEY)
    cache.sidecar(KEY).write_text(json.dumps({"schema": 1, "key": KEY}))
    with pytest.raises(SiteError, match="this is damaged"):
        cache.get(KEY)


def test_an_image_in_use_is_not_removed(tmp_path: Path) -> None:
    made = entry(cache := Cache(tmp_path))
    with lock.held(cache.lock(KEY)), pytest.raises(SiteError, match=f"in use by .*process {os.getpid()}"):
        cache.remove(made)
    cache.remove(made)
    assert cache.entries() == []


def test_leftovers_go_and_builds_under_way_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made = entry(cache)
    dead, alive = "d" * 64, "e" * 64
    for key in (KEY, dead, alive):
        (cache.working(key) / "rootfs").mkdir(parents=True)
    closed = next(cache.folder.glob(f".{dead}*")) / "rootfs" / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0)
    (cache.folder / ".keep").touch()
    with lock.held(cache.lock(KEY)), lock.held(cache.lock(alive)):
        cache.clear_leftovers(KEY)
    left = sorted(p.name[:5] for p in cache.folder.glob(".*"))
    assert left == [".eeee", ".keep"]
    assert cache.get(KEY) == made


def test_a_lock_is_one_mans_and_names_him(tmp_path: Path) -> None:
    path, order, told = tmp_path / "lock", [], []

    def second() -> None:
        with lock.held(path, told.append):
            order.append("second")

    with lock.held(path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    assert len(told) == 1 and f"{os.uname().nodename}, process {os.getpid()}, since " in told[0]


def test_a_lock_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="the lock cannot be opened"), lock.held(tmp_path / "no" / "lock"):
        pass


def test_the_key_follows_everything_that_goes_in(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    inputs = Inputs("text", (("files/0", tmp_path / "a"),), base_identity="sha256:1")
    keys = {inputs.key, replace(inputs, definition="other").key, replace(inputs, base_identity="sha256:2").key}
    keys |= {replace(inputs, compression="lz4").key, replace(inputs, files=(("files/1", tmp_path / "a"),)).key}
    (tmp_path / "a").write_text("2")
    assert len(keys | {inputs.key}) == 6


def test_the_key_is_the_same_wherever_the_files_lie(tmp_path: Path) -> None:
    recipe = Recipe("mine", Base(docker="debian"), files=(File("data", "/data"),))
    keys = set()
    for place in ("one", "two $(id)\n%post"):
        (tmp_path / place / "data" / "inner").mkdir(parents=True)
        (tmp_path / place / "data" / "inner" / "file").write_text("same")
        keys.add(collect(recipe, "text", tmp_path / place).key)
    assert len(keys) == 1


def test_a_folders_sum_sees_names_modes_links_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    sums = [sum_of(tmp_path)]
    for change in (
        lambda: (tmp_path / "a").chmod(0o755),
        lambda: (tmp_path / "b").symlink_to("a"),
        lambda: (tmp_path / "c").mkdir(),
        lambda: (tmp_path / "a").write_text("2"),
        lambda: (tmp_path / "a").rename(tmp_path / "d"),
    ):
        change()
        sums.append(sum_of(tmp_path))
    assert len(set(sums)) == 6
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "e.pyc").touch()
    assert sum_of(tmp_path) == sums[-1]


def test_a_changed_base_folder_is_another_base(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text("1")
    before = base_sum(tmp_path)
    assert base_sum(tmp_path) == before
    (tmp_path / "etc" / "os-release").write_text("12")
    assert base_sum(tmp_path) != before


def test_what_a_recipe_takes_in_must_be_there(tmp_path: Path) -> None:
    for recipe, says in (
        (Recipe("a", Base(folder="none")), "the recipe's base does not exist"),
        (Recipe("a", Base(sif=".")), "this is a folder, not a SIF"),
        (Recipe("a", Base(docker="debian"), files=(File("none", "/a"),)), "the recipe's file does not exist"),
    ):
        with pytest.raises(UserError, match=says):
            collect(recipe, "text", tmp_path)


def test_training_inside_is_laid_out_beside_the_definition(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    recipe = Recipe("a", Base(folder="base"), python=Python(("torch==2.13.0",)), training="inside")
    definition = collect(recipe, "text", tmp_path).lay_out(tmp_path / "work")
    assert definition.read_text() == "text"
    assert (tmp_path / "work" / "files" / "training" / "__main__.py").is_file()
    assert (tmp_path / "work" / "base").resolve() == (tmp_path / "base").resolve()
