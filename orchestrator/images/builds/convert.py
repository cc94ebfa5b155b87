"""Images of other forms: converted to a SIF by the runtime, and to a squashfs, which Pyxis starts (KEY.sqsh).

A conversion to a SIF is an entry of the cache. Its key depends on an archive's SHA-256, on the index of an OCI layout
(which names its content by digests), on the names, sizes and times of a folder's files, or on a reference of a
registry. No program runs from a folder directly: its files can change while ranks run, and reading all of them before
each start takes longer than a conversion.

enroot reads no SIF. A SIF contains a squashfs, which is copied as it is; that takes as long as a copy of the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, process, signals
from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.images import sif
from torusrun.orchestrator.images.builds import running
from torusrun.orchestrator.images.builds.cache import SQUASHFS, Cache, CachedImage
from torusrun.orchestrator.images.definitions.inputs import Inputs, base_checksum, file_checksum
from torusrun.orchestrator.images.source import NamedImage

SCHEMA = 1
LINK = "source"  # beside the build: the runtime reads a path with a colon as a path with a tag
PULLED = ("oras", "library")  # these hold SIFs, which are kept as they are
NAME = re.compile(r"[^A-Za-z0-9._-]+")
IMPORT_S = 7200.0  # for tens of GB from a slow registry
CHUNK_BYTES = 1 << 24
DOCKER_HUB = ("docker.io", "index.docker.io")  # enroot's own default
BOUND = {"torusrun.training": "bound"}
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Conversion(Inputs):
    """The inputs of a conversion. It has no definition of its own, only a header that would build the same."""

    transport: str = ""
    place: str = ""

    def _content(self) -> dict[str, Any]:
        return {"conversion": SCHEMA, "transport": self.transport, "identity": self.base_identity}

    def lay_out(self, folder: Path) -> str:
        """Make a link to the source in the new `folder`. Returns the runtime's word for it."""
        private.make(folder)
        if self.transport in ("docker", *PULLED):
            return f"{self.transport}://{self.place}"
        (folder / LINK).symlink_to(self.place)
        return ":".join(filter(None, (self.transport, LINK)))


def conversion(source: NamedImage) -> Conversion:
    """The conversion of an image that is not a SIF. Raises UserError if it does not exist or does not have its form."""
    return Conversion(
        f"Bootstrap: {source.transport or 'localimage'}\nFrom: {source.place}\n",
        base_identity=_identity(source),
        transport=source.transport,
        place=source.place,
    )


def name(source: NamedImage) -> str:
    """The name of the SIF in lists: the name of its file, folder or repository."""
    word = Path(source.place.partition("@")[0]).name
    word = re.sub(r"(\.tar)?(\.gz)?$", "", word) if source.kind != "registry" else word.partition(":")[0]
    return NAME.sub("-", word) or "image"


def _identity(source: NamedImage) -> str:
    path = Path(source.place)
    try:
        if source.kind == "registry":
            return source.place
        if source.kind == "layout":
            return file_checksum(path / "index.json")
        return base_checksum(path) if source.kind == "folder" else file_checksum(path)
    except OSError as error:
        raise UserError(f"{error.filename or path}: the image cannot be read: {error.strerror}") from None


def key_of_sif(sha256: str) -> str:
    """The key of the squashfs in the SIF with this checksum."""
    return hashlib.sha256(f"squashfs of the SIF {sha256}".encode()).hexdigest()


def key_of_import(reference: str) -> str:
    """The key of what enroot imports from a registry, as in docker://debian:bookworm."""
    return hashlib.sha256(f"enroot import {reference}".encode()).hexdigest()


def of_sif(entry: CachedImage, cache: Cache, progress: Progress) -> CachedImage:
    """The squashfs of a SIF, whose facts it keeps; from the cache, or copied now. Raises UserError, SiteError."""
    key, packages = key_of_sif(entry.sha256), entry.path.with_suffix(".packages")
    start, left = sif.squashfs(entry.path)
    with _free(key, cache, progress) as (kept, work):
        if kept:
            return kept
        began_s = time.time()
        with (
            explained(f"{work}: the squashfs of {entry.path} cannot be copied"),
            busy(f"copying the squashfs of {entry.path}"),
            open(private.open_regular(Path(os.path.realpath(entry.path))), "rb") as source,
            open(work, "xb") as target,
        ):
            source.seek(start)
            while left and (chunk := source.read(min(left, CHUNK_BYTES))):
                target.write(chunk)
                left -= len(chunk)
        if left:
            raise SiteError(f"{entry.path}: the SIF ends {left} bytes before its squashfs does; copy it again")
        if entry.key and packages.is_file():
            with explained(f"{packages}: cannot be copied"):
                shutil.copyfile(packages, cache.packages(key))
        made = replace(entry, key=key, built_by=f"the squashfs of a SIF of {entry.built_by}")
        return _published(made, work, cache, began_s)


def imported(
    reference: str, name: str, cache: Cache, enroot: str, environment: Mapping[str, str], progress: Progress
) -> CachedImage:
    """The image that enroot imports from a registry; from the cache, or imported now.

    Raises SiteError with enroot's message and the path of its whole output.
    """
    key = key_of_import(reference)
    with _free(key, cache, progress) as (kept, work):
        if kept:
            progress(
                f"note: {reference} was imported before; `torusrun image rm {kept.path}` lets "
                f"the next build import it again"
            )
            return kept
        log, began_s = cache.log(key), time.time()
        progress(f"enroot imports {reference}; its output: {log}")
        argv = [enroot, "import", "--output", str(work), reference]
        done = process.run(argv, timeout_s=IMPORT_S, environment=environment)
        private.write_bytes(log, (done.stdout + done.stderr).encode())
        if done.exit_code or not work.is_file():
            raise SiteError(f"{reference} was not imported: {complaint(done.stderr)} (log: {log})")
        header = f"Bootstrap: docker\nFrom: {reference.removeprefix('docker://')}\n"
        made = CachedImage(
            key=key, path=work, name=name, definition=header, sha256="", size_bytes=0, built_s=0.0, build_time_s=0.0,
            built_by="enroot", labels=BOUND, base=reference, source=key,
        )  # fmt: skip
        return _published(made, work, cache, began_s)


def reference(place: str) -> str:
    """A reference of a registry in enroot's form: docker://REGISTRY#IMAGE:TAG.

    A digest takes the place of the tag, as IMAGE:sha256:HEX. enroot 3 reads what is before an '@' as a user; for both
    its versions a tag may contain ':' (src/docker.sh of 3.5 and 4.1.2, read and not tried).
    """
    named, at, digest = place.partition("@")
    if at:
        folder, slash, last = named.rpartition("/")
        place = f"{folder}{slash}{last.partition(':')[0]}:{digest}"
    first, slash, rest = place.partition("/")
    if not slash or not ({".", ":"} & {*first} or first == "localhost"):
        return f"docker://{place}"
    return f"docker://{rest}" if first in DOCKER_HUB else f"docker://{first}#{rest}"


def complaint(stderr: str) -> str:
    """The line in which enroot says why it failed: the first with [ERROR], else the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR]")]
    return (errors or lines[-1:] or ["enroot said nothing"])[0]


@contextmanager
def _free(key: str, cache: Cache, progress: Progress) -> Iterator[tuple[CachedImage | None, Path]]:
    """Hold the lock of `key`. Yields its image in the cache, None if it is not whole, and a path for a new squashfs."""
    cache.make()
    with (
        signals.in_order(),
        running.held(cache.lock(key), lambda who: progress(f"waiting for the same image of {who}")),
    ):
        cache.clear_leftovers(key)
        work = cache.working(key)
        work = work.with_name(f"{work.name}{SQUASHFS}")
        try:
            yield cache.sound(key, progress), work
        finally:
            work.unlink(missing_ok=True)


def _published(made: CachedImage, work: Path, cache: Cache, began_s: float) -> CachedImage:
    now_s = time.time()
    finished = replace(
        made,
        path=cache.folder / f"{made.key}{SQUASHFS}",
        sha256=file_checksum(work),
        size_bytes=work.stat().st_size,
        built_s=now_s,
        build_time_s=now_s - began_s,
    )
    return cache.publish(finished, work)
