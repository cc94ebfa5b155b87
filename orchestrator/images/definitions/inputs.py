"""The inputs of a build besides the text of its definition: its base, its own files, and their checksums."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.command import own_training
from torusrun.orchestrator.images.definitions.image_file import LOCAL_BASES, ImageFile
from torusrun.orchestrator.keys.paths import expanded
from torusrun.training.files.trusted import sha256_of

SCHEMA = 2
BUILD_ONLY_FOLDER = "build-only"  # the folder beside a definition that is bound during the build
NOT_COPIED = ("__pycache__", "*.pyc", ".git")


@dataclass(frozen=True)
class Inputs:
    """A definition with everything that decides the result of its build."""

    definition: str
    files: tuple[tuple[str, Path], ...] = ()  # (name beside the definition, current path)
    base: Path | None = None  # a local folder, SIF or archive
    base_identity: str = ""
    texts: tuple[tuple[str, str], ...] = ()  # (name below build-only/, content)
    archives: tuple[tuple[str, Path], ...] = ()  # (name below build-only/, current path)
    wheelhouse: str = ""  # its checksum
    directory: Path | None = None  # the folder of a user's own definition, whose files are used in place
    beside: tuple[tuple[str, Path], ...] = ()  # the files of that folder that the build reads
    labels: Mapping[str, str] = field(default_factory=dict)  # labels of the image that are not in the definition
    built_s: int = 0  # no file of the image gets a later time, in seconds since the epoch; 0 for no limit
    notes: tuple[str, ...] = ()  # what has no effect, for the user
    keeps_modes: bool = False  # whether the image gets the modes of single files
    plain: str = ""  # the key of the same image file without a lock and a wheelhouse, if that differs

    @property
    def key(self) -> str:
        """The image's place in the cache: 64 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def check(self) -> None:
        """Raise UserError if a file cannot be read, or if a link has no end."""
        self._content()

    def _content(self) -> dict[str, Any]:
        """What decides the result."""
        content = {
            "schema": SCHEMA,
            "definition": self.definition,
            "files": [[name, checksum_of_tree(path)] for name, path in (*self.files, *self.archives, *self.beside)],
            "texts": self.texts,
            "base": self.base_identity,
            "wheelhouse": self.wheelhouse,
            "labels": dict(self.labels),
        }
        if self.keeps_modes:
            content["executable"] = [
                name for name, path in self.files if path.is_file() and path.stat().st_mode & 0o100
            ]
        return content

    @property
    def source(self) -> str:
        """The key by which a run finds the image: a run knows the image file, but no lock or wheelhouse."""
        return self.plain or self.key

    def lay_out(self, folder: Path) -> str:
        """Write the definition and copy its inputs to the new `folder`, in which the build runs.

        Returns the runtime's word for what it builds: here the path of the definition.
        """
        private.make(folder)
        (folder / "files").mkdir()
        for name, path in self.files:
            for inner in [*Path(name).parents][-3::-1]:  # below files/: folders whose mode the image gets
                (folder / inner).mkdir(exist_ok=True)
                (folder / inner).chmod(private.FOLDER)
            if path.is_dir():
                # The runtime copies the targets of links, so a link to a place outside the folder must not stay a link.
                shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns(*NOT_COPIED))
            else:
                shutil.copy2(path, folder / name)
        self._lay_out_build_only(folder / BUILD_ONLY_FOLDER)
        if self.base:
            (folder / "base").symlink_to(self.base)
        (folder / "image.def").write_text(self.definition, encoding="utf-8", newline="\n")
        return str(folder / "image.def")

    def _lay_out_build_only(self, folder: Path) -> None:
        (folder / "wheels").mkdir(parents=True)  # the mount point of a wheelhouse
        for name, path in self.archives:
            (folder / name).parent.mkdir(parents=True)
            shutil.copy2(path, folder / name)
        for name, text in self.texts:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")


def collect(image_file: ImageFile, beside: Path) -> Inputs:
    """The base and the files of an image file whose relative paths start at `beside`; its definition is still empty.

    Raises UserError if a path does not exist.
    """
    files = [(f"files/{i}", existing(beside, file.source, "file")) for i, file in enumerate(image_file.files)]
    if image_file.training == "inside":
        files.append(("files/training", own_training()))
    local = next((path for kind in LOCAL_BASES if (path := getattr(image_file.base, kind))), None)
    base = existing(beside, local, "base") if local else None
    if base and bool(image_file.base.folder) != base.is_dir():
        raise UserError(f"{base}: this is {'not a folder' if image_file.base.folder else 'a folder, not a file'}")
    identity = base_checksum(base) if base else image_file.base.digest or ""
    return Inputs("", tuple(files), base, identity)


def checksum_of_tree(path: Path) -> str:
    """SHA-256 of a file, or of a folder's names, modes and contents; a link counts as its target.

    Raises UserError if a file cannot be read, or if a link leads to a folder that holds it.
    """
    try:
        if not path.is_dir():
            return file_checksum(path)
        total = hashlib.sha256()
        for name, entry in _entries(path, links=True):
            content, mode = "" if entry.is_dir() else file_checksum(entry), entry.stat().st_mode
            kind = f"{stat.S_IFMT(mode):o} {'x' if mode & 0o100 else ''}"
            total.update(json.dumps([name, kind, content]).encode())
        return total.hexdigest()
    except OSError as error:
        raise UserError(f"{error.filename or path}: cannot be read: {error.strerror}") from None


def base_checksum(path: Path) -> str:
    """The identity of a base: the SHA-256 of a SIF, or of a folder the names, modes, sizes and times of its files.

    A search in the cache would be slow if it read all contents of a root file system.
    """
    if not path.is_dir():
        return checksum_of_tree(path)
    total = hashlib.sha256()
    for name, entry in _entries(path):
        known = entry.lstat()
        times = [] if stat.S_ISDIR(known.st_mode) else [known.st_size, known.st_mtime_ns]
        total.update(json.dumps([name, known.st_mode, *times]).encode(errors="surrogateescape"))
    return total.hexdigest()


def file_checksum(path: Path) -> str:
    """SHA-256 of the content of a file, or of the target of a link. Raises OSError, also for a FIFO."""
    return sha256_of(Path(os.path.realpath(path)))


def _entries(folder: Path, links: bool = False) -> Iterator[tuple[str, Path]]:
    """All entries below a folder that are copied, in an order that does not depend on the file system.

    With `links`, also the entries of folders that are targets of links.
    """
    for where, folders, names in os.walk(folder, followlinks=links):
        folders[:] = sorted(filter(is_copied, folders))
        copied = sorted([*folders, *filter(is_copied, names)])
        if links:
            refuse_loops(folder, where, copied)
        for name in copied:
            entry = Path(where, name)
            yield str(entry.relative_to(folder)), entry


def is_copied(name: str) -> bool:
    """Whether a copy of a folder takes in the files and folders of this name."""
    return not any(fnmatchcase(name, pattern) for pattern in NOT_COPIED)


def refuse_loops(root: Path, where: str, names: list[str]) -> None:
    """Raise UserError for an endless link in the folder `where`, which a walk from `root` has reached.

    Such a link leads to a folder that the walk is in, by itself or through other links, or to a link that leads back.
    `names` are those that are copied: a link that is left out harms nobody.
    """
    links = [link for name in sorted(names) if (link := Path(where, name)).is_symlink()]
    walked = [at.resolve() for at in (Path(where), *Path(where).parents) if at.is_relative_to(root)] if links else []
    for link in links:
        try:
            target = Path(os.path.realpath(link, strict=True))
        except OSError as error:
            if error.errno != errno.ELOOP:
                continue  # whoever reads the file names the problem
            to = os.readlink(link)
            raise UserError(f"{link}: this link leads to {to}, which leads back to it; remove one of them") from None
        if above := next((at for at in walked if at.is_relative_to(target)), None):
            through = "" if above == walked[0] else ", through another link"
            raise UserError(f"{link}: this link leads to a folder that holds it{through}; remove the link")


def existing(beside: Path, name: str, what: str) -> Path:
    """The path that an image file names. Raises UserError if it does not exist or cannot be read."""
    path = (beside / expanded(name)).absolute()
    if not path.exists():
        raise UserError(f"{path}: the image file's {what} does not exist")
    if not os.access(path, os.R_OK):
        raise UserError(f"{path}: the image file's {what} cannot be read")
    return path
