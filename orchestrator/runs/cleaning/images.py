"""Built images that no run has used for long, and what killed builds left. An image can be built again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.base import private
from orchestrator.base.errors import SiteError, UserError
from orchestrator.images.builds.build import TEMPORARY
from orchestrator.images.builds.cache import Cache, CachedImage, remove_tree
from orchestrator.runs.cleaning.garbage import Garbage
from orchestrator.runs.folder import disk
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.image.recorded import kept
from orchestrator.runs.state.view import View

KEY_SHOWN = 12  # digits of a key in the name of a build's temporary folder


@dataclass(frozen=True)
class Uses:
    """The images of runs, each by its key and by its path: those of runs that are not over, and all last uses."""

    needed: Collection[str]
    last_s: dict[str, float]
    caches: Collection[Path]

    def of(self, entry: CachedImage) -> float | None:
        """When an image was last used (of time.time()); None if a run that is not over needs it."""
        names = (entry.key, os.path.realpath(entry.path))
        if any(name in self.needed for name in names):
            return None
        read_s = entry.path.stat().st_atime  # by runs of others, too
        return max(entry.built_s, read_s, *(self.last_s.get(name, 0.0) for name in names))


def uses(views: Sequence[View]) -> Uses:
    """The images that runs use, and the folders of theirs that are caches.

    Raises SiteError if the image of a run that is not over is unknown.
    """
    needed: set[str] = set()
    last_s: dict[str, float] = {}
    caches: set[Path] = set()
    for view in views:
        run = RunFolder(Path(view.folder))
        try:
            image = kept(run)
            used_s = run.ledger.stat().st_mtime
        except (SiteError, OSError) as error:
            if view.state.over:
                continue
            raise SiteError(f"{error}; the image of {view.run} is unknown, so no image can be removed") from None
        names = (image.key, os.path.realpath(image.path)) if image else ()
        last_s |= {name: max(used_s, last_s.get(name, 0.0)) for name in names if name}
        if not view.state.over:
            needed |= {*filter(None, names)}
        if image and image.key:
            caches.add(Path(image.path).parent)
    return Uses(needed, last_s, caches)


def unused(cache: Cache, found: Uses, before_s: float) -> Iterator[Garbage]:
    """The images of a cache that were not used since `before_s`, and are not being built."""
    for entry in cache.entries(lambda why: None) if private.is_mine(cache.folder) else ():
        with contextlib.suppress(FileNotFoundError):
            used_s = found.of(entry)
            if used_s is not None and used_s < before_s and not cache.is_building(entry.key):
                yield Garbage("image", entry.path, entry.size_bytes, used_s, entry.name, partial(cache.remove, entry))


def leftovers(cache: Cache, temporary: Path | None, before_s: float) -> Iterator[Garbage]:
    """What killed builds left in the cache and in the site's folder for builds, unchanged since `before_s`."""
    mine = cache.leftovers() if private.is_mine(cache.folder) else []
    for path in mine:
        yield from _leftover(path, before_s, cache, path.name[1:].partition(".")[0])
    for path in temporary.glob(f"{TEMPORARY}-{'?' * KEY_SHOWN}-*") if temporary else ():
        begins = path.name.removeprefix(f"{TEMPORARY}-")[:KEY_SHOWN]
        keys = [lock.stem for lock in cache.folder.glob(f"{begins}*.lock")]
        if private.is_mine(path) and keys:
            yield from _leftover(path, before_s, cache, keys[0])


def _leftover(path: Path, before_s: float, cache: Cache, key: str) -> Iterator[Garbage]:
    with contextlib.suppress(OSError):
        changed_s = path.lstat().st_mtime
        if changed_s < before_s and not cache.is_building(key):
            remove = partial(_remove, path, cache, key)
            yield Garbage("leftover", path, disk.of_path(path), changed_s, "a build that was killed", remove)


def _remove(path: Path, cache: Cache, key: str) -> None:
    if cache.is_building(key):
        raise UserError(f"{path}: its image is being built now")
    if not remove_tree(path):
        raise SiteError(f"{path}: this could not be removed wholly; see its permissions, and remove it by hand")
