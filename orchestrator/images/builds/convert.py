"""Convert an image of another form to a SIF, with the runtime's own `build` or `pull`, as an entry of the cache.

Its key depends on an archive's SHA-256, on the index of an OCI layout (which names its content by digests), on the
names, sizes and times of a folder's files, or on a reference of a registry. No program runs from a folder directly:
its files can change while ranks run, and reading all of them before each start takes longer than a conversion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.inputs import Inputs, base_checksum, file_checksum
from torusrun.orchestrator.images.source import NamedImage

SCHEMA = 1
LINK = "source"  # beside the build: the runtime reads a path with a colon as a path with a tag
PULLED = ("oras", "library")  # these hold SIFs, which are kept as they are, with their signatures
NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Conversion(Inputs):
    """The inputs of a conversion. It has no definition of its own, only a header that would build the same."""

    transport: str = ""
    place: str = ""

    def _content(self) -> dict[str, Any]:
        return {
            "conversion": SCHEMA,
            "transport": self.transport,
            "identity": self.base_identity,
            "compression": self.compression,
        }

    def lay_out(self, folder: Path) -> str:
        """Make a link to the source in the new `folder`. Returns the runtime's word for it."""
        private.make(folder)
        if self.transport in ("docker", *PULLED):
            return f"{self.transport}://{self.place}"
        (folder / LINK).symlink_to(self.place)
        return ":".join(filter(None, (self.transport, LINK)))


def conversion(source: NamedImage, compression: str) -> Conversion:
    """The conversion of an image that is not a SIF. Raises UserError if it does not exist or does not have its form."""
    return Conversion(
        f"Bootstrap: {source.transport or 'localimage'}\nFrom: {source.place}\n",
        base_identity=_identity(source),
        compression=compression,
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
