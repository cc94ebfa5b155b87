"""The cache: an image is there whole or not at all, and nobody else puts one there."""

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import until
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images.builds import running
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
from torusrun.orchestrator.images.definitions.inputs import file_checksum

KEY = "a" * 64


def entry(
    cache: Cache,
    key: str = KEY,
    content: bytes = b"image",
    name: str = "mine",
    source: str = "",
    suffix: str = ".sif",
) -> CachedImage:
    cache.make()
    finished = cache.working(key)
    finished.write_bytes(content)
    made = CachedImage(
        key, cache.folder / f"{key}{suffix}", name, "Bootstrap: x", file_checksum(finished), len(content), 1.0, 2.0,
        "fake 1.0",
        source=source,
    )  # fmt: skip
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
    find = cache.find
    assert find("mine") == one and find("bbbb") == two and find(str(two.path)) == two
    entry(cache, "c" * 64)
    with pytest.raises(UserError, match=r"'mine' is 2 images; name one by its key: \w{12}, \w{12}"):
        find("mine")
    with pytest.raises(UserError, match="there is no image 'x'"):
        find("x")


def test_a_changed_image_does_not_verify(tmp_path: Path) -> None:
    made = entry(cache := Cache(tmp_path))
    made.path.write_bytes(b"other")
    assert "its SHA-256 is" in str(cache.verify(made))
    made.path.unlink()
    assert "cannot be read" in str(cache.verify(made))


@pytest.mark.parametrize("content", [b"imagE", b"imag"], ids=["a flipped bit", "truncated"])
def test_a_damaged_image_is_no_hit(tmp_path: Path, content: bytes) -> None:
    made, told = entry(cache := Cache(tmp_path)), []
    assert cache.sound(KEY, told.append) == made and not told
    made.path.write_bytes(content)
    assert cache.sound(KEY, told.append) is None
    assert len(told) == 1 and told[0].startswith(f"{made.path}: its SHA-256 is ")
    assert entry(cache).path.read_bytes() == b"image", "a build puts a sound one there"


def test_half_an_entry_is_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry(cache).path.unlink()
    assert cache.get(KEY) is None and cache.entries() == []
    entry(cache)
    cache.sidecar(KEY).unlink()
    assert cache.get(KEY) is None
    for half in ("{", json.dumps({"schema": 1, "key": KEY})):
        cache.sidecar(KEY).write_text(half)
        with pytest.raises(SiteError, match="this is damaged"):
            cache.get(KEY)


def test_an_image_in_use_is_not_removed(tmp_path: Path) -> None:
    made = entry(cache := Cache(tmp_path))
    with running.held(cache.lock(KEY)), pytest.raises(SiteError, match=f"in use by .*process {os.getpid()}"):
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
    with running.held(cache.lock(KEY)), running.held(cache.lock(alive)):
        cache.clear_leftovers(KEY)
    left = sorted(p.name[:5] for p in cache.folder.glob(".*"))
    assert left == [".eeee", ".keep"]
    assert cache.get(KEY) == made


def test_a_lock_is_one_mans_and_names_him(tmp_path: Path) -> None:
    path, order, told = tmp_path / "lock", [], []

    def second() -> None:
        with running.held(path, told.append):
            order.append("second")

    with running.held(path):
        thread = threading.Thread(target=second)
        thread.start()
        until(lambda: told, "the second one to wait")
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert len(told) == 1 and f"{os.uname().nodename}, process {os.getpid()}, since " in told[0]


def test_a_lock_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="the lock cannot be opened"), running.held(tmp_path / "no" / "lock"):
        pass


def test_a_cache_that_others_can_write_into_is_refused(tmp_path: Path) -> None:
    """A stranger could put an image of his own under any key; that a folder is sticky does not hinder him."""
    cache = Cache(tmp_path / "images")
    made = entry(cache)
    for mode in (0o777, 0o1777, 0o770):
        cache.folder.chmod(mode)
        for ask in (cache.make, lambda: cache.get(KEY), cache.entries, lambda: cache.find("mine")):
            with pytest.raises(SiteError, match="other(s|.users) (may|can) .*`chmod go-w` it"):
                ask()
    cache.folder.chmod(0o755)
    assert cache.get(KEY) == made, "others may read it"


@pytest.mark.needs("users")
def test_a_cache_of_somebody_else_is_refused(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "images")
    entry(cache)
    os.chown(cache.folder, 4242, 4242)
    with pytest.raises(SiteError, match="belongs to user 4242"):
        cache.get(KEY)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "lock"
    precious.write_text("mine")
    path.symlink_to(precious)
    with pytest.raises(SiteError, match="lock: the lock cannot be opened: this is a symbolic link"), running.held(path):
        pass
    assert precious.read_text() == "mine"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SiteError, match="this is not a regular file"), running.held(path):
        pass


def test_a_lock_is_its_users_alone_and_is_shown_without_control_characters(tmp_path: Path) -> None:
    with running.held(tmp_path / "lock"):
        assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    (tmp_path / "lock").write_bytes(b"\x1b[2Jhost\nsecond line")
    assert running.holder(tmp_path / "lock") == "\\x1b[2Jhost"


def a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def without_a_key(path: Path) -> None:
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "labels"}))


def has(**others: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **others}))


def holds(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


HARMS = {
    "a FIFO": a_fifo, "a link": a_link, "without a key": without_a_key,
    "another key": has(key=f"../../{'a' * 58}"), "a number for a name": has(name=7),
    "a list in the labels": has(labels={"torusrun.training": ["bound"]}),
    "a list": holds(b"[]"), "deep": holds(b"[" * 100_000), "not text": holds(b"\xff"),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_sidecar_hides_its_own_image_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], harm: str
) -> None:
    cache = Cache(tmp_path / "images")
    entry(cache)
    other = entry(cache, "b" * 64, name="other")
    HARMS[harm](cache.sidecar(KEY))
    with pytest.raises(SiteError, match=rf"{KEY}\.json: "):
        cache.get(KEY)
    assert cache.entries() == [other] and cache.find("other") == other
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and all(line.startswith(f"torusrun: {cache.sidecar(KEY)}: ") for line in told)


def test_an_image_that_is_a_link_is_none_of_the_caches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path / "images")
    made = entry(cache)
    precious = tmp_path / "precious.sif"
    made.path.rename(precious)
    made.path.symlink_to(precious)
    with pytest.raises(SiteError, match="this is a symbolic link, and is not followed; remove it"):
        cache.get(KEY)
    assert "symbolic link" in str(cache.verify(made)) and cache.entries() == []
    cache.remove(made)
    assert precious.read_bytes() == b"image" and not made.path.is_symlink()


def test_a_name_is_the_image_of_the_form_that_the_site_starts(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    one, two = entry(cache), entry(cache, "b" * 64, suffix=".sqsh")
    assert cache.find("mine") == one and cache.find("mine", ".sqsh") == two
    assert cache.find(str(two.path)) == two


def test_a_build_that_fails_clears_the_text_of_its_lock(tmp_path: Path) -> None:
    with pytest.raises(ValueError), running.held(tmp_path / "lock"):
        raise ValueError
    assert not running.is_signed(tmp_path / "lock")


@pytest.mark.needs("users")
@pytest.mark.parametrize("suffix", [".sif", ".json", ".packages"])
def test_what_a_stranger_left_in_a_cache_is_not_used_when_it_is_closed_again(tmp_path: Path, suffix: str) -> None:
    cache = Cache(tmp_path / "images")
    made = entry(cache)
    (cache.folder / f"{KEY}.packages").touch()
    planted = cache.folder / f"{KEY}{suffix}"
    os.chown(planted, 4242, 4242)
    with pytest.raises(SiteError, match=f"{suffix}: it belongs to user 4242; remove it"):
        cache.get(KEY)
    os.chown(planted, os.geteuid(), os.getegid())
    assert cache.get(KEY) == made
    planted.chmod(0o666)
    with pytest.raises(SiteError, match="all users can write into it"):
        cache.get(KEY)


def test_a_name_that_begins_a_key_means_neither(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "images")
    keyed, _ = entry(cache, "bed" + KEY[3:]), entry(cache, "a" + KEY[1:], name="bed")
    with pytest.raises(UserError, match="'bed' is 2 images; name one by its key"):
        cache.find("bed")
    assert cache.find("bed" + KEY[3:6]) == keyed
