"""The cache: an image is there whole or not at all, and nobody else puts one there."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images.builds import running
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
from torusrun.orchestrator.images.builds.caches import Caches, one_of, users
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.keys.load import load_site
from torusrun.orchestrator.run.image import building

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
    find = Caches((), cache).find
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
        thread.join(0.5)
        order.append("first")
    thread.join(5)
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
        for ask in (cache.make, lambda: cache.get(KEY), cache.entries, lambda: Caches((), cache).find("mine")):
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
    assert cache.entries() == [other] and Caches((), cache).find("other") == other
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
    with pytest.raises(SiteError, match="symbolic link"):
        cache.keep_checksum(made)
    cache.remove(made)
    assert precious.read_bytes() == b"image" and not made.path.is_symlink()


def shared_by(cache: Cache, folder: Path) -> Caches:
    """The caches of a user whose group has `cache`."""
    return Caches((cache,), Cache(folder / "own"))


def test_a_cache_of_others_is_searched_and_never_written(tmp_path: Path) -> None:
    group = Cache(tmp_path / "group")
    caches = shared_by(group, tmp_path)
    theirs, own = entry(group), entry(caches.own, "b" * 64, name="other")
    assert caches.get(KEY) == caches.sound(KEY) == theirs and caches.get("b" * 64) == own
    assert caches.entries() == [own, theirs] and caches.find("mine") == theirs and caches.of(theirs) == group
    assert caches.writable(own, "remove") == caches.own
    with pytest.raises(UserError, match="it is in a cache of other users; only they can remove it"):
        caches.writable(theirs, "remove")
    assert {stat.S_IMODE(path.stat().st_mode) for path in group.folder.iterdir()} == {0o644}, "others can read them"
    twice = entry(caches.own)
    assert caches.find("mine") == twice, "one image in two caches is one image"


@pytest.mark.parametrize("suffix", [".sif", ".sqsh"])
def test_ones_own_image_comes_before_that_of_a_group(suffix: str, tmp_path: Path) -> None:
    caches = shared_by(Cache(tmp_path / "group"), tmp_path)
    theirs = entry(caches.shared[0], "b" * 64, source=KEY, suffix=suffix)
    assert next(caches.built_from([KEY], suffix)) == theirs
    own = entry(caches.own, "c" * 64, source=KEY, suffix=suffix)
    assert next(caches.built_from([KEY], suffix)) == own
    caches.own.sidecar(own.key).write_text("{")
    assert next(caches.built_from([KEY], suffix)) == theirs, "a damaged one hides no other"


def test_a_name_is_the_image_of_the_form_that_the_site_starts(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    one, two = entry(cache), entry(cache, "b" * 64, suffix=".sqsh")
    assert Caches((), cache).find("mine") == one and Caches((), cache, ".sqsh").find("mine") == two
    assert Caches((), cache).find(str(two.path)) == two


def test_the_owner_of_a_groups_cache_has_it_once(tmp_path: Path) -> None:
    Cache(tmp_path / "group").make()
    (tmp_path / "link").symlink_to("group")
    container = f"container: {{cache: {tmp_path}/group, caches: [{tmp_path}/link, {tmp_path}/other]}}\n"
    (tmp_path / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\nnode: {{ranks: 1}}\n{container}")
    found = building.caches(load_site(str(tmp_path / "site.yaml")))
    mine = entry(found.own)
    assert found.entries() == [mine] and found.writable(mine, "remove") == found.own
    assert [cache.folder.name for cache in found.shared] == ["other"]


def test_a_build_that_fails_clears_the_text_of_its_lock(tmp_path: Path) -> None:
    with pytest.raises(ValueError), running.held(tmp_path / "lock"):
        raise ValueError
    assert not running.is_signed(tmp_path / "lock")


def test_a_damaged_image_of_others_is_a_miss(tmp_path: Path) -> None:
    caches, told = shared_by(Cache(tmp_path / "group"), tmp_path), list[str]()
    entry(caches.shared[0]).path.write_bytes(b"other")
    assert caches.sound(KEY, told.append) is None and "it is not used" in told[0]
    own = entry(caches.own)
    assert caches.sound(KEY, told.append) == own


@pytest.mark.parametrize("trouble", ["missing", "writable", "a file", "damaged"])
def test_a_cache_of_others_that_cannot_be_used_is_a_miss_with_a_remark(tmp_path: Path, trouble: str) -> None:
    group, told = Cache(tmp_path / "group"), list[str]()
    entry(group)
    if trouble == "missing":
        group.folder.rename(tmp_path / "gone")
    elif trouble == "writable":
        group.folder.chmod(0o777)
    elif trouble == "a file":
        (tmp_path / "file").touch()
        group = Cache(tmp_path / "file")
    else:
        group.sidecar(KEY).write_text("{")
    caches = shared_by(group, tmp_path)
    got = next(caches.each(lambda cache: cache.get(KEY), told.append), None)
    assert got is None and caches.entries(told.append) == []
    assert bool(told) == (trouble != "missing")


@pytest.mark.needs("users")
@pytest.mark.parametrize("mode", [0o700, 0o711])
def test_a_closed_cache_of_others_is_a_miss_with_a_remark(mode: int, tmp_path: Path) -> None:
    group = Cache(tmp_path / "group")
    entry(group, content=b"theirs")
    group.sidecar(KEY).chmod(0o600)
    group.folder.chmod(mode)
    program = (
        "import os, sys; from pathlib import Path; from torusrun.orchestrator.images.builds.cache import Cache\n"
        "from torusrun.orchestrator.images.builds.caches import Caches\n"
        "os.fchdir(int(sys.argv[1])); os.setgid(65534); os.setuid(65534)\n"
        "caches = Caches((Cache(Path('group'), (0,)),), Cache(Path('own')))\n"
        f"print(caches.get({KEY!r}), caches.entries())\n"
    )
    above = os.open(group.folder.parent, os.O_RDONLY)  # pytest's folders keep other users out, too
    try:
        group.folder.parent.chmod(0o755)
        words = [sys.executable, "-c", program, str(above)]
        said = subprocess.run(words, pass_fds=[above], capture_output=True, text=True, timeout=60)
    finally:
        os.close(above)
    assert said.stdout == "None []\n" and "Permission denied; this cache is not used" in said.stderr, said.stderr


@pytest.mark.needs("users")
def test_only_named_owners_may_own_a_cache_of_others(tmp_path: Path) -> None:
    group = Cache(tmp_path / "group")
    made = entry(group)
    os.chown(group.folder, 65534, 65534)
    told = list[str]()
    assert next(shared_by(group, tmp_path).each(lambda cache: cache.get(KEY), told.append), None) is None
    assert "belongs to user 65534" in told[0]
    trusted = Cache(group.folder, users(["65534", "root"]))
    assert shared_by(trusted, tmp_path).get(KEY) == made
    with pytest.raises(UserError, match="this machine has no user 'nobody-of-that-name'"):
        users(["nobody-of-that-name"])


@pytest.mark.needs("users")
@pytest.mark.parametrize("suffix", [".sif", ".json", ".packages"])
def test_what_a_stranger_left_in_a_cache_is_not_used_when_it_is_closed_again(tmp_path: Path, suffix: str) -> None:
    cache = Cache(tmp_path / "images")
    made = entry(cache)
    (cache.folder / f"{KEY}.packages").touch()
    planted = cache.folder / f"{KEY}{suffix}"
    os.chown(planted, 4242, 4242)
    with pytest.raises(SiteError, match=f"{suffix}: it belongs to user 4242; remove it, or name that user"):
        cache.get(KEY)
    assert Cache(cache.folder, users(["4242"])).get(KEY) == made
    os.chown(planted, os.geteuid(), os.getegid())
    planted.chmod(0o666)
    with pytest.raises(SiteError, match="all users can write into it"):
        cache.get(KEY)


def test_a_name_that_begins_a_key_means_neither(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "images")
    keyed, named = entry(cache, "bed" + KEY[3:]), entry(cache, "a" + KEY[1:], name="bed")
    with pytest.raises(UserError, match="'bed' is 2 images; name one by its key"):
        one_of([keyed, named], "bed", cache.folder)
    assert (
        one_of([named], "bed", cache.folder) is named
        and one_of([keyed, named], "bed" + KEY[3:6], cache.folder) is keyed
    )
