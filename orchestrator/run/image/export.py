"""Exports an image with its records, to a folder or a tar file, for another site."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage, remove_tree
from torusrun.orchestrator.images.definitions.inputs import file_checksum


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
