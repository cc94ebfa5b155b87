"""The content-addressed images of a site, on a file system that its nodes share.

CACHE/KEY.sif    the image; it appears by rename, when it is complete
CACHE/KEY.sqsh   the same for an image that Pyxis starts (convert.py)
CACHE/KEY.json   its sidecar: the facts about it; written before the image appears
CACHE/KEY.packages  the lock of its packages, as JSON
CACHE/KEY.log    the log of its last build, also of a failed build
CACHE/KEY.lock   one builder at a time
CACHE/.KEY.*     a running build, or the leftovers of a killed one; the next build removes the leftovers

Only its owner may write into the folder, since whoever else writes into it can replace any image. Links in it are not
followed. A damaged sidecar hides only its own image.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import lock, private, proc, process, strangers
from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.base.json_files import damaged, read_object, write_json
from torusrun.orchestrator.base.terminal.remarks import busy, warn
from torusrun.orchestrator.base.typed import kept_record
from torusrun.orchestrator.images.builds.running import holder, is_signed
from torusrun.orchestrator.images.definitions.package_lock import LOCKED
from torusrun.training.files.trusted import sha256_of

SCHEMA = 1
KEY_DIGITS = 64
SIF, SQUASHFS = SUFFIXES = (".sif", ".sqsh")  # no key has both
AS_ALL_MY_IDS = ("unshare", "--map-root-user", "--map-auto")  # util-linux 2.38 or newer
REMOVAL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class CachedImage:
    """An image of the cache with the facts of its sidecar."""

    key: str
    path: Path
    name: str
    definition: str
    sha256: str
    size_bytes: int
    built_s: float  # seconds since the epoch
    build_time_s: float
    built_by: str  # the runtime
    labels: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    base: str = ""
    source: str = ""  # the key of its image file without lock and wheelhouse

    @property
    def variant(self) -> str:
        """What tells images of the same name apart: the site's choices, and packages of a lock."""
        locked = "locked" if LOCKED in self.definition else ""
        return " ".join(filter(None, (self.labels.get("torusrun.variant"), locked)))

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "path": self.path.name}


@dataclass(frozen=True)
class Cache:
    """The cache in `folder`."""

    folder: Path

    def make(self) -> None:
        """Create the folder. Raises SiteError when that fails, or when others can write into it."""
        private.make(self.folder)
        self.check()

    def check(self) -> None:
        """Raise SiteError when others can write into the folder, even if it is sticky like /tmp."""
        private.check(self.folder)
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        if mode & private.OTHERS_WRITE:
            raise SiteError(
                f"{self.folder}: others may put images into this cache (mode {mode:04o}); `chmod go-w` it, or name "
                "another folder in 'container.cache' of the site"
            )

    def image(self, key: str) -> Path:
        squashed = self.folder / f"{key}{SQUASHFS}"
        return squashed if os.path.lexists(squashed) else self.folder / f"{key}{SIF}"

    def sidecar(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def packages(self, key: str) -> Path:
        return self.folder / f"{key}.packages"

    def log(self, key: str) -> Path:
        return self.folder / f"{key}.log"

    def lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def working(self, key: str) -> Path:
        """A new unique name for a running build."""
        return self.folder / f".{key}.{os.uname().nodename}.{os.getpid()}.{time.monotonic_ns()}"

    def get(self, key: str) -> CachedImage | None:
        """The image with this key, or None if the cache has none, or only half of it.

        Raises SiteError if others can write into the cache, or if the entry is damaged.
        """
        try:
            status = self.image(key).lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SiteError(f"{self.image(key)}: cannot be read: {error.strerror}") from None
        self.check()
        if not stat.S_ISREG(status.st_mode):
            why = private.NOT_FOLLOWED if stat.S_ISLNK(status.st_mode) else private.NOT_REGULAR
            raise SiteError(f"{self.image(key)}: {why}; remove it")
        self._check_owner(self.image(key))
        kept = read_object(self.sidecar(key))
        for path in (self.sidecar(key), self.packages(key)):
            self._check_owner(path)
        if kept is None or kept.get("schema") != SCHEMA:
            return None
        entry = kept_record(self.sidecar(key), CachedImage, kept, path=self.image(key))
        if entry.key != key:
            raise damaged(self.sidecar(key), "its key is another image's")
        return entry

    def _check_owner(self, path: Path) -> None:
        """Raise SiteError for a file that a stranger put into the folder while others could write into it."""
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if strangers.is_stranger(status.st_uid):
                raise SiteError(f"{path}: it belongs to user {status.st_uid}; remove it")
            if status.st_mode & stat.S_IWOTH and not stat.S_ISLNK(status.st_mode):
                raise SiteError(f"{path}: all users can write into it; remove it and build the image again")

    def sound(self, key: str, broken: Callable[[str], None] = warn) -> CachedImage | None:
        """The image with this key, read from end to end. None if its content changed; `broken` gets the problem."""
        entry = self.get(key)
        if entry and (wrong := self.verify(entry)):
            broken(f"{wrong}; it is not used")
            return None
        return entry

    def entries(self, broken: Callable[[str], None] = warn) -> list[CachedImage]:
        """All images, the newest first. `broken` gets the problem of each image that cannot be read."""
        if not os.path.isdir(self.folder):
            return []
        self.check()
        images = []
        with explained(f"{self.folder}: cannot be read"):
            paths = sorted(self.folder.iterdir())
        for path in paths:
            if path.suffix in SUFFIXES and len(path.stem) == KEY_DIGITS:
                try:
                    images.append(self.get(path.stem))
                except SiteError as error:
                    broken(str(error))
        return sorted((image for image in images if image), key=lambda image: -image.built_s)

    def newest_of(self, sources: Collection[str], suffix: str = SIF) -> CachedImage | None:
        """The newest image that was built from one of these sources, with any lock or wheelhouse."""
        plain = [self.get(key) for key in sources]
        others = [image for image in self.entries(lambda why: None) if image.source in sources]
        fitting = (image for image in [*plain, *others] if image and image.path.suffix == suffix)
        return max(fitting, key=lambda image: image.built_s, default=None)

    def find(self, word: str, starts: str = SIF) -> CachedImage:
        """The image with this name, path or beginning of a key. Raises UserError unless exactly one image matches.

        A name that images of several forms have means the form that the site starts.
        """
        images = self.entries()
        keyed = [image for image in images if image.key.startswith(word) or str(image.path) == word]
        named = [image for image in images if image.name == word]
        named = [image for image in named if image.path.suffix == starts] or named
        matches = {image.key: image for image in [*keyed, *named]}
        if len(matches) == 1:
            return next(iter(matches.values()))
        if not matches:
            raise UserError(f"there is no image {word!r} in {self.folder}; `torusrun image ls` lists them")
        keys = ", ".join(key[:12] for key in matches)
        raise UserError(f"{word!r} is {len(matches)} images; name one by its key: {keys}")

    def publish(self, entry: CachedImage, finished: Path) -> CachedImage:
        """Move a finished image to its name. The sidecar is written first, so that every image has one."""
        with explained(f"{entry.path}: cannot be put into the cache"):
            with open(private.open_regular(finished), "rb") as stream:
                os.fsync(stream.fileno())
            write_json(self.sidecar(entry.key), entry.as_json())
            for path in (finished, self.sidecar(entry.key), self.packages(entry.key)):
                if path.exists():
                    path.chmod(private.READABLE)  # the folder's mode says who reads its files
            finished.replace(entry.path)
        return entry

    def verify(self, entry: CachedImage) -> str | None:
        """The problem of an image, which is read from end to end; None if its content is as built."""
        try:
            with busy(f"reading {entry.path}, whose checksum is compared"):
                sha256 = sha256_of(entry.path)
        except OSError as error:
            return f"{entry.path}: cannot be read: {error.strerror}"
        return changed(entry.path, sha256, entry.sha256)

    def remove(self, entry: CachedImage) -> None:
        """Remove an image, its sidecar and its log. Raises SiteError if it is being built or cannot be removed."""
        with lock.held(self.lock(entry.key), wait_s=0.0) as free:
            if free is False:
                raise SiteError(f"{entry.key[:12]} is in use by {holder(self.lock(entry.key))}")
            try:
                for path in (entry.path, self.sidecar(entry.key), self.packages(entry.key), self.log(entry.key)):
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise SiteError(f"{error.filename}: cannot be removed: {error.strerror}") from None

    def clear_leftovers(self, held_key: str) -> None:
        """Remove the leftovers of killed builds, but not of running ones. The caller holds the lock of `held_key`."""
        for path in self.leftovers():
            if _key_of(path) == held_key:
                end_and_remove(path)
            else:
                self.remove_leftover(path)

    def leftovers(self) -> list[Path]:
        """What running builds have in the folder, and killed ones have left."""
        return [path for path in sorted(self.folder.glob(".*")) if len(_key_of(path)) == KEY_DIGITS]

    def is_building(self, key: str) -> bool:
        """Whether the image with this key is being built; on a file system without locks, whether it may be."""
        if not self.lock(key).exists():
            return False
        with lock.held(self.lock(key), wait_s=0.0) as free:
            return is_signed(self.lock(key)) if free is None else not free

    def remove_leftover(self, path: Path) -> bool:
        """Remove what a killed build left; False if its build is running, or if it cannot be removed."""
        at_work = self.lock(_key_of(path))
        with lock.held(at_work, wait_s=0.0) as free:
            return free is not False and not (free is None and is_signed(at_work)) and end_and_remove(path)


def changed(image: Path, now: str, built: str) -> str | None:
    """The problem of an image whose SHA-256 is `now` and was `built`; None if both are the same."""
    return f"{image}: its SHA-256 is {now}, and was {built} when built" if now != built else None


def sum_beside(image: Path) -> str | None:
    """The SHA-256 in the sidecar that the cache and `image export` put beside an image; None without a sidecar."""
    with contextlib.suppress(SiteError):  # a file of the user's that has the same name
        kept = read_object(image.with_suffix(".json")) or {}
        if kept.get("schema") == SCHEMA and kept.get("path") == image.name:
            return str(kept.get("sha256"))
    return None


def _key_of(leftover: Path) -> str:
    return leftover.name[1:].partition(".")[0]


def end_and_remove(path: Path) -> bool:
    """End the processes of a killed build whose temporary folder is in `path`, and remove `path`; whether it is gone.

    A runtime may pack an image to its end after its parent was killed (seen with Apptainer 1.4.5, 48 s).
    """
    for pid in proc.with_in_environment(f"TMPDIR={path}"):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return remove_tree(path)


def remove_tree(path: Path) -> bool:
    """Remove a leftover. Returns whether it is gone.

    A root file system holds folders that their owner may not enter. A fakeroot build also leaves files of the user's
    subordinate ids (/etc/subuid), which only a process with these ids can remove.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return True
    for where, folders, _ in os.walk(path):
        for folder in folders:
            if not (inner := Path(where, folder)).is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(stat.S_IRWXU)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        with contextlib.suppress(SiteError):
            process.run([*AS_ALL_MY_IDS, "rm", "-rf", "--", str(path)], timeout_s=REMOVAL_TIMEOUT_S)
    return not path.exists()
