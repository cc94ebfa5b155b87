"""The caches of a site: first one's own, into which images are built, then those of others, which are only read.

A cache of others holds an image or it does not: one that is missing, closed or not to be trusted is a miss with a
remark, and never ends a verb.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.images.builds.cache import SIF, Cache, CachedImage, remove_tree
from torusrun.orchestrator.images.definitions.inputs import file_checksum

Found = TypeVar("Found")


@dataclass(frozen=True)
class Caches:
    """The caches of a site in the order in which an image is searched."""

    shared: tuple[Cache, ...]
    own: Cache
    starts: str = SIF  # the form of image that the site starts

    def get(self, key: str) -> CachedImage | None:
        """The image with this key from the first cache that has it. Raises SiteError if one's own is damaged."""
        return next(self.each(lambda cache: cache.get(key)), None)

    def sound(self, key: str, broken: Callable[[str], None] = warn) -> CachedImage | None:
        """Like `get`, but the image is read from end to end; one whose content changed is not used."""
        return next(self.each(lambda cache: cache.sound(key, broken), broken), None)

    def each(self, ask: Callable[[Cache], Found | None], broken: Callable[[str], None] = warn) -> Iterator[Found]:
        """What the caches answer, one's own first. `broken` gets the problems of the others.

        A problem of one's own is raised last, so that it hides no image of the others.
        """
        problem = None
        try:
            if own := ask(self.own):
                yield own
        except SiteError as error:
            problem = error
        for cache in self.shared:
            try:
                if found := ask(cache):
                    yield found
            except SiteError as error:
                broken(f"{error}; this cache is not used ('container.caches' and 'owners' of the site)")
        if problem:
            raise problem

    def built_from(self, sources: Collection[str], suffix: str = SIF) -> Iterator[CachedImage]:
        """The newest image of each cache that was built from one of these sources, or made of such an image."""
        return self.each(lambda cache: cache.newest_of(sources, suffix))

    def entries(self, broken: Callable[[str], None] = warn) -> list[CachedImage]:
        """The images of all caches."""
        return [entry for entries in self.each(lambda cache: cache.entries(broken), broken) for entry in entries]

    def find(self, word: str) -> CachedImage:
        """The image with this name, path or beginning of a key. Raises UserError unless exactly one image matches.

        A name is that of the form which the site starts, if there are several.
        """
        return one_of(self.entries(), word, self.own.folder, self.starts)

    def of(self, entry: CachedImage) -> Cache:
        """The cache that holds an image."""
        return next((cache for cache in self.shared if cache.folder == entry.path.parent), self.own)

    def writable(self, entry: CachedImage, what: str) -> Cache:
        """One's own cache. Raises UserError if the image is in a cache of others."""
        if self.of(entry) in self.shared:
            raise UserError(f"{entry.path}: it is in a cache of other users; only they can {what} it")
        return self.own


def one_of(entries: Iterable[CachedImage], word: str, folder: Path, starts: str = SIF) -> CachedImage:
    """The image of `Caches.find`, out of `entries`."""
    entries = list(entries)
    keyed = [e for e in entries if e.key.startswith(word) or str(e.path) == word]
    named = [e for e in entries if e.name == word]
    named = [e for e in named if e.path.suffix == starts] or named
    found = list({e.key: e for e in reversed([*keyed, *named])}.values())  # of one image in two caches one's own
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(f"there is no image {word!r} in {folder}; `torusrun image ls` lists them")
    keys = ", ".join(e.key[:12] for e in found)
    raise UserError(f"{word!r} is {len(found)} images; name one by its key: {keys}")


def users(names: Iterable[str]) -> tuple[int, ...]:
    """The numbers of users. Raises UserError for a name that this machine does not know."""
    return tuple(map(_user, names))


def _user(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise UserError(f"'container.owners': this machine has no user {name!r}") from None


def export(cache: Cache, entry: CachedImage, to: Path) -> Path:
    """Write the image, its definition, its lock, its facts and their checksums to `to`, which must not exist.

    A name that ends in .tar gives a tar file, any other name a folder. Raises UserError if `to` exists, SiteError if
    the image has changed since its build, or if the disk is full. `to` appears only when it is complete.
    """
    if to.exists() or to.is_symlink():
        raise UserError(f"{to}: this exists; name a folder or .tar file that does not")
    folder = to.with_name(f".{to.name}.{os.getpid()}")
    packed = folder.with_name(f"{folder.name}.tar")
    try:
        _fill(folder, cache, entry)
        if to.suffix == ".tar":
            with tarfile.open(packed, "w") as tar:
                tar.add(folder, arcname=entry.name)
            packed.rename(to)
        else:
            folder.rename(to)
    except OSError as error:
        raise SiteError(f"{error.filename or to}: cannot be written: {error.strerror}") from None
    finally:
        packed.unlink(missing_ok=True)
        if folder.exists():
            remove_tree(folder)
    return to


def _fill(folder: Path, cache: Cache, entry: CachedImage) -> None:
    folder.mkdir(mode=0o700)
    image = folder / f"{entry.name}{entry.path.suffix}"
    shutil.copyfile(entry.path, image)
    if (found := file_checksum(image)) != entry.sha256:
        raise SiteError(f"{entry.path}: its SHA-256 is {found}, and was {entry.sha256} when built")
    write_text(folder / f"{entry.name}.def", entry.definition)
    write_json(folder / f"{entry.name}.json", {**entry.as_json(), "path": image.name})
    if cache.packages(entry.key).exists():
        shutil.copyfile(cache.packages(entry.key), folder / f"{entry.name}.lock")
    sums = "".join(f"{file_checksum(path)}  {path.name}\n" for path in sorted(folder.iterdir()))
    write_text(folder / "SHA256SUMS", sums)
