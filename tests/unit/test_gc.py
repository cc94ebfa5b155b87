"""`torusrun gc`: what it finds and removes, and what a run, a build or a session still needs."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.unit.containers.test_cache import entry
from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.test_many_at_once import at_work, job  # noqa: F401
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.builds import running
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage
from torusrun.orchestrator.remote import store
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.upkeep import garbage
from torusrun.orchestrator.upkeep.collect import PARTIAL

OLD_S = time.time() - 40 * 86400.0
LONG_AGO = (1.0, 1.0)


@pytest.fixture
def spec(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run file whose site has a cache in this home."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    made = write_specs(home)
    with (home / "site.yaml").open("a") as site:
        site.write(f"container: {{cache: {home}/images, temporary: {home}/builds}}\n")
    (home / "builds").mkdir()
    return made


def gc(spec: Path, *options: str) -> int:
    return main(["gc", "--site", str(spec.parent / "site.yaml"), *options])


def image(home: Path, letter: str, used: Sequence[RunFolder] = ()) -> Path:
    """A cached image of long ago, which these runs use; its file."""
    cache = Cache(home / "images")
    made = entry(cache, letter * 64, letter.encode(), name=f"image-{letter}")
    os.utime(made.path, LONG_AGO)
    for run in used:
        write_json(run.image, asdict(Image(str(made.path), made.sha256, made.name, made.key)))
    return made.path


def half_written(run: RunFolder) -> Path:
    """A checkpoint of long ago whose writer was killed."""
    path = run.checkpoints / ".tmp-step-00000050-1"
    path.mkdir(parents=True)
    (path / "state.pt").touch()
    os.utime(path, LONG_AGO)
    return path


def test_images_go_that_no_run_used_for_long(
    spec: Path, home: Path, job: str, capsys: pytest.CaptureFixture[str]  # noqa: F811
) -> None:  # fmt: skip
    over, old = make(spec, DONE), make(spec, DONE)
    unused, used_long_ago = image(home, "a"), image(home, "b", [old])
    os.utime(old.ledger, (OLD_S, OLD_S))
    needed, recent = image(home, "c", [at_work(spec, job)]), image(home, "d", [over])
    read, built = image(home, "e"), image(home, "f")
    os.utime(read, (time.time(), 1.0))
    with running.held(Cache(home / "images").lock("f" * 64)):
        assert gc(spec, "--yes", "--json") == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert {(row["kind"], row["path"], row["removed"]) for row in found} == {
        ("image", str(path), True) for path in (unused, used_long_ago)
    }
    assert not unused.exists() and not used_long_ago.exists() and not unused.with_suffix(".json").exists()
    assert all(path.exists() for path in (needed, recent, read, built))
    assert gc(spec, "--older-than", "2999-01-01", "--yes") == 0
    assert [path.exists() for path in (needed, recent, read, built)] == [True, False, False, False]


def test_no_image_goes_if_that_of_a_run_at_work_is_unknown(
    spec: Path, home: Path, job: str, capsys: pytest.CaptureFixture[str]  # noqa: F811
) -> None:  # fmt: skip
    unused, run = image(home, "a"), at_work(spec, job)
    run.image.write_text("{")
    assert gc(spec, "--yes") == 3
    assert f"the image of {run.run_id} is unknown" in capsys.readouterr().err and unused.exists()


@pytest.mark.parametrize(("answer", "stays"), [("y\n", False), ("\n", True), ("", True)])
def test_it_shows_sizes_and_asks(
    spec: Path, home: Path, answer: str, stays: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    unused = image(home, "a")
    assert gc(spec, "--dry-run") == 0 and unused.exists()
    assert "image-a" in capsys.readouterr().out
    typed = io.StringIO(answer)
    monkeypatch.setattr("sys.stdin", typed)
    assert gc(spec) == 2 and unused.exists(), "there is no terminal to ask on"
    assert "this would remove 1 thing and free 1; add --yes" in capsys.readouterr().err
    monkeypatch.setattr(typed, "isatty", lambda: True)
    assert gc(spec) == 0
    assert unused.exists() == stays and ("freed 1" in capsys.readouterr().out) != stays
    assert stays or (gc(spec) == 0 and capsys.readouterr().out == "nothing to remove\n")


def test_what_is_used_between_question_and_answer_stays(
    spec: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = image(home, "a"), image(home, "b")

    class Late(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, size: int = -1) -> str:  # type: ignore[override]
            os.utime(one, (time.time(), 1.0))
            return "y\n"

    monkeypatch.setattr("sys.stdin", Late())
    assert gc(spec) == 0
    assert one.exists() and not other.exists()


def test_an_image_stays_that_a_run_takes_while_others_are_removed(
    spec: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files, removed, remove = [image(home, letter) for letter in "abc"], list[str](), Cache.remove

    def slow(cache: Cache, entry: CachedImage) -> None:
        """A run is submitted with the second image, and the third is read, while the first is removed."""
        removed.append(entry.key[0])
        image(home, "b", [make(spec, DONE)])
        os.utime(files[2], (time.time(), 1.0))
        remove(cache, entry)

    monkeypatch.setattr(Cache, "remove", slow)
    assert gc(spec, "--yes") == 2
    assert removed == ["a"] and [path.exists() for path in files] == [False, True, True]
    assert capsys.readouterr().err.count("uses this image now") == 2


def test_nothing_goes_of_a_run_whose_ranks_still_live(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make(spec, DONE)
    path = half_written(run)
    held = claim.hold(run.attempt(1))
    try:
        assert gc(spec, "--yes") == 2
    finally:
        os.close(held)
    assert "still at work" in capsys.readouterr().err and path.exists()


def test_leftovers_go_and_what_is_at_work_stays(spec: Path, home: Path, job: str) -> None:  # noqa: F811
    cache = Cache(home / "images")
    cache.make()
    over, busy = make(spec, DONE), at_work(spec, job)
    left, stays = list[Path](), list[Path]()
    for letter, now in (("d", left), ("e", stays)):
        (cache.lock(letter * 64)).touch(mode=0o600)
        now += [cache.working(letter * 64), home / "builds" / f"torusrun-{letter * 12}-x"]
    left += [over.checkpoints / ".tmp-step-00000050-1", over.folder.parent / f"{store.STAGED}01"]
    left.append(store.place() / f"{store.SENT}x")
    stays += [busy.checkpoints / ".tmp-step-00000050-1", home / "builds/mine"]
    for path in (*left, *stays):
        path.mkdir(parents=True)
        (path / "file").touch()
        os.utime(path / "file", LONG_AGO)
        os.utime(path, LONG_AGO)
    new, growing = cache.working("c" * 64), over.folder.parent / f"{PARTIAL}03"
    new.mkdir()
    growing.mkdir()
    (growing / "state.pt").touch()
    os.utime(growing, LONG_AGO)
    with running.held(cache.lock("e" * 64)):
        assert gc(spec, "--yes") == 0
    assert not [path for path in left if path.exists()]
    assert not [path for path in (*stays, new, growing) if not path.exists()]


def test_a_running_build_is_at_work_on_a_file_system_without_locks_too(
    spec: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the text of the lock says it, for a day: the next build replaces that of a killed one."""

    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    cache = Cache(home / "images")
    files = [image(home, letter) for letter in "abc"]
    working = [cache.working(letter * 64) for letter in "abc"]
    for path in working:
        path.mkdir()
        os.utime(path, LONG_AGO)
    cache.lock("b" * 64).write_text("")  # its build ended in order
    cache.lock("c" * 64).write_text("n3, process 7, since 12:34:56")
    os.utime(cache.lock("c" * 64), (OLD_S, OLD_S))
    for lock_file in ("b", "c"):
        cache.lock(lock_file * 64).chmod(0o600)
    with running.held(cache.lock("a" * 64)):
        assert not cache.remove_leftover(working[0])
        assert gc(spec, "--yes") == 0
    assert [path.exists() for path in (*files, *working)] == [True, False, False] * 2


def test_a_checkpoint_that_stays_in_part_is_not_counted_as_freed(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = half_written(make(spec, DONE))
    monkeypatch.setattr(garbage, "remove_tree", lambda path: False)  # as of a busy file on NFS
    assert gc(spec, "--yes") == 3
    said = capsys.readouterr()
    assert "freed 0" in said.out and f"{path}: this could not be removed" in said.err
