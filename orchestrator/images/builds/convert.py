"""A SIF made of an image in another form, by the runtime's own `build` or `pull`, as an entry of the cache.

What decides its key: an archive's SHA-256, the index of an OCI layout (which names its content by digests), the names,
sizes and times of a folder's files, or a reference of a registry. Nothing is started from a folder as it is: its files
can change while ranks run, and reading them all before each start would take longer than a conversion.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.base import private
from orchestrator.base.errors import UserError
from orchestrator.images.definitions.inputs import Inputs, base_checksum, file_checksum
from orchestrator.images.source import TAG, NamedImage

SCHEMA = 1
LINK = "source"  # beside the build: a path with a colon would be read as a path with a tag
PULLED = ("oras", "library")  # these hold SIFs, which stay as they are, with their signatures
NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Conversion(Inputs):
    """What a conversion reads. It has no definition but the words that would build the same."""

    transport: str = ""
    place: str = ""
    tag: str = ""

    @property
    def key(self) -> str:
        """The SIF's place in the cache: 64 hexadecimal digits."""
        content = {
            "conversion": SCHEMA,
            "transport": self.transport,
            "identity": self.base_identity,
            "tag": self.tag,
            "compression": self.compression,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def word(self, folder: Path) -> str:
        """What the runtime reads, as a word for it; a link to it is made in the new `folder`."""
        private.make(folder)
        if self.transport in ("docker", *PULLED):
            return f"{self.transport}://{self.place}"
        (folder / LINK).symlink_to(self.place)
        return ":".join(filter(None, (self.transport, LINK, self.tag)))


def conversion(source: NamedImage, compression: str) -> Conversion:
    """What converts an image that is no SIF. Raises UserError where it is not there, or is not what its form says."""
    if source.tag and not TAG.fullmatch(source.tag):
        raise UserError(f"{source.text}: {source.tag!r} is no tag")
    found = Conversion(
        "", base_identity=_identity(source), compression=compression, transport=source.transport, place=source.place,
        tag=source.tag,
    )  # fmt: skip
    return at(found, source.place)


def at(conversion: Conversion, place: str) -> Conversion:
    """The same entry of the cache, made of `place`: a tag's image by its digest."""
    tag = f":{conversion.tag}" if conversion.tag else ""
    definition = f"Bootstrap: {conversion.transport or 'localimage'}\nFrom: {place}{tag}\n"
    return replace(conversion, place=place, definition=definition)


def name(source: NamedImage) -> str:
    """A name for the SIF in lists: of its file or folder, or of its repository."""
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
