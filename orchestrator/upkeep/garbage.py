"""What no run needs: images unused for long, and the remains of killed builds and writers of checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.images.builds.build import TEMPORARY
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage, remove_tree
from torusrun.orchestrator.run.attempts.cancel import is_unsure
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image.recorded import all_kept
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.upkeep import disk
from torusrun.orchestrator.upkeep.remove import check_over
from torusrun.training.checkpoint.manifest import TEMPORARY_PREFIX

KEY_SHOWN = 12  # digits of a key in the name of a build's temporary folder
DAY_S = 86400.0


@dataclass(frozen=True)
class Garbage:
    """Something that can be removed."""

    kind: str  # "image" or "leftover"
    path: Path
    size_bytes: int
    used_s: float  # its last use (of time.time())
    why: str  # what it is
    remove: Callable[[], None]  # looks again whether it is needed; raises a TorusrunError if so, or if a part stays
    removed: bool = False


def listing(things: Sequence[Garbage], now_s: float) -> Table[Garbage]:
    columns: tuple[Column[Garbage], ...] = (
        Column("KIND", lambda item: item.kind, key="kind", right=False),
        Column("SIZE", lambda item: item.size_bytes, size, key="bytes", right=True),
        Column("UNUSED", lambda item: now_s - item.used_s, lambda s: f"{s / DAY_S:.0f} d", key="unused_s", right=True),
        Column("WHAT", lambda item: plain(item.why), key="what", right=False),
        Column("PATH", lambda item: plain(str(item.path)), key="path", right=False),
        Column(None, lambda item: item.removed, key="removed"),
    )
    return Table(columns, things)


def remove(path: Path) -> None:
    """Remove a file or folder. Raises SiteError if a part of it stays."""
    if not remove_tree(path):
        raise SiteError(f"{path}: this could not be removed completely; see its permissions, and remove it by hand")


@dataclass(frozen=True)
class Uses:
    """The images of runs, each by its key and by its path: those of runs that are not over, and all last uses.

    `known_s` is when the ledger of each of these runs had changed.
    """

    needed: Collection[str]
    last_s: dict[str, float]
    caches: Collection[Path]
    known_s: dict[Path, float]

    def of(self, entry: CachedImage) -> float | None:
        """When an image was last used (of time.time()); None if a run that is not over needs it."""
        names = (entry.key, os.path.realpath(entry.path))
        if any(name in self.needed for name in names):
            return None
        read_s = entry.path.stat().st_atime  # by runs of others, too
        return max(entry.built_s, read_s, *(self.last_s.get(name, 0.0) for name in names))

    def newer(self, entry: CachedImage) -> str:
        """The id of a run with this image that was submitted or resumed since these uses were read; '' for none."""
        real = os.path.realpath(entry.path)
        for run in index.runs():
            with contextlib.suppress(SiteError, OSError):
                if run.ledger.stat().st_mtime != self.known_s.get(run.folder):
                    images = all_kept(run).values()
                    if any(image.key == entry.key or os.path.realpath(image.path) == real for image in images):
                        return run.run_id
        return ""


def uses(views: Sequence[View]) -> Uses:
    """The images that runs use, and the folders of theirs that are caches.

    Raises SiteError if the image of a run that is not over is unknown.
    """
    needed: set[str] = set()
    last_s: dict[str, float] = {}
    caches: set[Path] = set()
    known_s: dict[Path, float] = {}
    for view in views:
        run = RunFolder(Path(view.folder))
        try:
            images = all_kept(run).values()
            used_s = run.ledger.stat().st_mtime
        except (SiteError, OSError) as error:
            if view.state.over:
                continue
            raise SiteError(f"{error}; the image of {view.run} is unknown, so no image can be removed") from None
        known_s[run.folder] = used_s
        names = {name for image in images for name in (image.key, os.path.realpath(image.path))}
        last_s |= {name: max(used_s, last_s.get(name, 0.0)) for name in names if name}
        if not view.state.over:
            needed |= {*filter(None, names)}
        caches |= {Path(image.path).parent for image in images if image.key}
    return Uses(needed, last_s, caches, known_s)


def images(cache: Cache, uses_now: Uses, before_s: float) -> Iterator[Garbage]:
    """The images of a cache of this user that were not used since `before_s`, and are not being built."""
    for entry in cache.entries(lambda why: None):
        with contextlib.suppress(FileNotFoundError):
            used_s = uses_now.of(entry)
            if used_s is not None and used_s < before_s and not cache.is_building(entry.key):
                act = partial(_remove_image, cache, entry, uses_now, before_s)
                yield Garbage("image", entry.path, entry.size_bytes, used_s, entry.name, act)


def _remove_image(cache: Cache, entry: CachedImage, uses_then: Uses, before_s: float) -> None:
    """Remove an image. Raises UserError if somebody has begun to use it since the uses were read."""
    if run_id := uses_then.newer(entry):
        raise UserError(f"{entry.path}: {run_id} uses this image now")
    with contextlib.suppress(FileNotFoundError):
        used_s = uses_then.of(entry)
        if used_s is None or used_s >= before_s:
            raise UserError(f"{entry.path}: another process uses this image now")
    cache.remove(entry)


def of_builds(cache: Cache, before_s: float) -> Iterator[Garbage]:
    """What killed builds left in the cache, unchanged since `before_s`."""
    for path in cache.leftovers():
        yield from _leftover(path, before_s, [(cache, path.name[1:].partition(".")[0])])


def of_temporary_builds(caches: Sequence[Cache], temporary: Path, before_s: float) -> Iterator[Garbage]:
    """What killed builds for any of the caches left in the site's folder for builds, unchanged since `before_s`."""
    for path in sorted(temporary.glob(f"{TEMPORARY}-{'?' * KEY_SHOWN}-*")):
        begins = path.name.removeprefix(f"{TEMPORARY}-")[:KEY_SHOWN]
        builds = [(cache, lock.stem) for cache in caches for lock in cache.folder.glob(f"{begins}*.lock")]
        if private.is_mine(path) and builds:
            yield from _leftover(path, before_s, builds)


def _leftover(path: Path, before_s: float, builds: Sequence[tuple[Cache, str]]) -> Iterator[Garbage]:
    """A folder of one of these builds, each in a cache with a key, unless one of them is at work."""
    with contextlib.suppress(OSError):
        changed_s = path.lstat().st_mtime
        if changed_s < before_s and not any(cache.is_building(key) for cache, key in builds):
            act = partial(_remove_of_build, path, builds)
            yield Garbage("leftover", path, disk.of_path(path), changed_s, "a build that was killed", act)


def _remove_of_build(path: Path, builds: Sequence[tuple[Cache, str]]) -> None:
    if any(cache.is_building(key) for cache, key in builds):
        raise UserError(f"{path}: its image is being built now")
    remove(path)


def of_checkpoints(views: Sequence[View], before_s: float) -> Iterator[Garbage]:
    """Half-written checkpoints of the user's runs that are over, unchanged since `before_s`."""
    for run in map(RunFolder, (Path(view.folder) for view in views if _is_over(view))):
        for path in sorted(run.checkpoints.glob(f"{TEMPORARY_PREFIX}*step-*")):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                changed_s = path.lstat().st_mtime
                if changed_s < before_s and path.is_dir() and not path.is_symlink():
                    why = f"a half-written checkpoint of {run.run_id}"
                    act = partial(_remove_of_run, run, path)
                    yield Garbage("leftover", path, disk.of_path(path), changed_s, why, act)


def _is_over(view: View) -> bool:
    """True if the run is over, belongs to the user, and has checkpoints in its folder."""
    run = RunFolder(Path(view.folder))
    if not view.state.over or run.checkpoints.is_symlink() or not run.checkpoints.is_dir() or not run.ledger.exists():
        return False
    try:
        index.own(run)
        return not is_unsure(run, view)
    except (TorusrunError, OSError):  # such as: it has just been removed
        return False


def _remove_of_run(run: RunFolder, path: Path) -> None:
    """Remove a folder of a run while nobody resumes it. Raises UserError if the run is not over."""
    with alone(run):
        check_over(run, look(run))
        remove(path)
