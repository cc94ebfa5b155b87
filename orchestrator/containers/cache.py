"""The content-addressed images of a site, on a file system that its nodes share.

CACHE/KEY.sif    the image; its appearance, by rename, is the moment it exists
CACHE/KEY.json   what is known of it; written before the image appears
CACHE/KEY.log    the log of its last build, failed ones included
CACHE/KEY.lock   one builder at a time
CACHE/.KEY.*     a build under way, or what a killed one left; the next build clears it
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator import process
from orchestrator.containers import lock
from orchestrator.containers.inputs import file_sum
from orchestrator.errors import SiteError, UserError
from orchestrator.runs.files import read_json, write_json

SCHEMA = 1
KEY_DIGITS = 64
AS_ALL_MY_IDS = ("unshare", "--map-root-user", "--map-auto")  # util-linux 2.38 or newer
REMOVAL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Entry:
    """An image of the cache and what its sidecar says."""

    key: str
    path: Path
    name: str
    definition: str
    sha256: str
    size_bytes: int
    built_s: float  # when, since the epoch
    build_time_s: float
    built_by: str  # the runtime
    labels: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    base: str = ""
    compression: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "path": self.path.name}


@dataclass(frozen=True)
class Cache:
    """The cache in `folder`."""

    folder: Path

    def make(self) -> None:
        """Create the folder. Raises SiteError when that fails."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SiteError(f"{self.folder}: the image cache cannot be made: {error.strerror}") from None

    def image(self, key: str) -> Path:
        return self.folder / f"{key}.sif"

    def sidecar(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def log(self, key: str) -> Path:
        return self.folder / f"{key}.log"

    def lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def working(self, key: str) -> Path:
        """A new name for a build under way; nobody else has it."""
        return self.folder / f".{key}.{os.uname().nodename}.{os.getpid()}.{time.monotonic_ns()}"

    def get(self, key: str) -> Entry | None:
        """The image with this key, None where there is none (or only half of one)."""
        if not self.image(key).is_file():
            return None
        kept = read_json(self.sidecar(key))
        if kept is None:
            return None
        try:
            if kept.pop("schema") != SCHEMA:
                return None
            return Entry(**{**kept, "path": self.image(key)})
        except (TypeError, AttributeError, KeyError) as error:
            raise SiteError(f"{self.sidecar(key)}: this is damaged: {error}") from None

    def entries(self) -> list[Entry]:
        """All images, the newest first."""
        keys = [path.stem for path in self.folder.glob("*.sif") if len(path.stem) == KEY_DIGITS]
        return sorted((e for key in keys if (e := self.get(key))), key=lambda e: -e.built_s)

    def find(self, word: str) -> Entry:
        """The image with this name, path or beginning of a key. Raises UserError when it is not exactly one."""
        entries = self.entries()
        found = [e for e in entries if e.key.startswith(word) or str(e.path) == word] or [
            e for e in entries if e.name == word
        ]
        if len(found) == 1:
            return found[0]
        if not found:
            raise UserError(f"there is no image {word!r} in {self.folder}; `torusrun image ls` lists them")
        keys = ", ".join(e.key[:12] for e in found)
        raise UserError(f"{word!r} is {len(found)} images; name one by its key: {keys}")

    def publish(self, entry: Entry, finished: Path) -> Entry:
        """Give a finished image its name: sidecar first, so that an image never stands without one."""
        try:
            with open(finished, "rb") as stream:
                os.fsync(stream.fileno())
            write_json(self.sidecar(entry.key), entry.as_json())
            finished.chmod(0o644)
            finished.replace(self.image(entry.key))
        except OSError as error:
            raise SiteError(f"{self.image(entry.key)}: cannot be put into the cache: {error.strerror}") from None
        return entry

    def verify(self, entry: Entry) -> str | None:
        """What is wrong with an image, read from end to end; None when it is the one that was built."""
        try:
            found = file_sum(entry.path)
        except OSError as error:
            return f"{entry.path}: cannot be read: {error.strerror}"
        return None if found == entry.sha256 else f"{entry.path}: its sum is {found}, and was {entry.sha256} when built"

    def keep_sum(self, entry: Entry) -> None:
        """Take an image as it is now for what it is: its owner has signed it."""
        now = replace(entry, sha256=file_sum(entry.path), size_bytes=entry.path.stat().st_size)
        write_json(self.sidecar(entry.key), now.as_json())

    def remove(self, entry: Entry) -> None:
        """Remove an image, then what is known of it. Raises SiteError when it is being built or cannot be removed."""
        with lock.held_if_free(self.lock(entry.key)) as free:
            if not free:
                raise SiteError(f"{entry.key[:12]} is in use by {lock.holder(self.lock(entry.key))}")
            try:
                for path in (entry.path, self.sidecar(entry.key), self.log(entry.key)):
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise SiteError(f"{error.filename}: cannot be removed: {error.strerror}") from None

    def clear_leftovers(self, key: str) -> list[Path]:
        """Remove what killed builds left; the caller holds the lock of `key`. Builds under way keep theirs."""
        return [path for path in self._leftovers(key) if remove_tree(path)]

    def _leftovers(self, held_key: str) -> Iterator[Path]:
        for path in sorted(self.folder.glob(".*")):
            key = path.name[1:].partition(".")[0]
            if key == held_key:
                yield path
            elif len(key) == KEY_DIGITS:
                with lock.held_if_free(self.lock(key)) as free:
                    if free:
                        yield path


def remove_tree(path: Path) -> bool:
    """Remove a leftover; whether it is gone.

    Root file systems hold folders that their owner may not enter, and files of the further ids that a user has in a
    fakeroot build (/etc/subuid): those are removed as these ids.
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
