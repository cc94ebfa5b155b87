"""One image of an OCI layout or archive that holds several, as a layout of its own.

Runtimes cannot be given a tag: Apptainer 1.4.5 takes it for a part of the path ("stat FOLDER:TAG/index.json").
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
import tarfile
import zlib
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError

INDEX, VERSION = "index.json", "oci-layout"
PARTS = re.compile(rf"(?:\./)?({INDEX}|{VERSION}|blobs/sha256/[0-9a-f]{{64}})")
LARGEST_INDEX_BYTES = 1 << 20
NAME = "org.opencontainers.image.ref.name"  # source: OCI image specification, annotations.md


def alone(source: Path, tag: str, folder: Path) -> None:
    """Make the new `folder` a layout of the image `tag` in `source`, a layout or an archive of one.

    Raises UserError if `source` has no such image or another form, OSError if it cannot be read.
    """
    folder.mkdir()
    if source.is_dir():
        (folder / "blobs").symlink_to(source / "blobs")
        for name in (INDEX, VERSION):
            shutil.copyfile(source / name, folder / name)
    else:
        _unpack(source, folder)
    index = _read(folder / INDEX, source)
    found = {_name(image): image for image in index["manifests"] if _name(image)}
    chosen = [name for name in found if name == tag or name.endswith(f":{tag}")]
    if len(chosen) != 1:
        has = ", ".join(sorted(found)) or "none with a name"
        raise UserError(f"{source}: {len(chosen)} of its images are named {tag!r}; it has {has}")
    (folder / INDEX).write_text(json.dumps({**index, "manifests": [found[chosen[0]]]}), encoding="utf-8")


def _unpack(archive: Path, folder: Path) -> None:
    """Write the parts of a layout, all regular files, from an archive."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = PARTS.fullmatch(member.name)
                content = tar.extractfile(member) if name and member.isreg() else None
                if name and content:
                    (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
                    with open(folder / name[1], "wb") as file:
                        shutil.copyfileobj(content, file)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"{archive}: this is not a complete archive of an OCI layout: {why}") from None


def _read(index: Path, source: Path) -> dict[str, Any]:
    try:
        found = json.loads(private.read_bytes(index, LARGEST_INDEX_BYTES))
        if all(isinstance(image, dict) for image in found["manifests"]):
            return dict(found)
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        pass
    raise UserError(f"{source}: this is not an OCI layout: it has no {INDEX} with a list of images")


def _name(image: dict[str, Any]) -> str:
    annotations = image.get("annotations")
    return str(annotations.get(NAME, "")) if isinstance(annotations, dict) else ""
