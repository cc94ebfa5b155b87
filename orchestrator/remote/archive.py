"""One archive of this torusrun and the packages that it needs, made from the installed files.

So nothing is downloaded, and the login node gets the version that is in use here. Compiled modules are left out: the
packages work without them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.remote.boot import NEEDS, PACKAGES

MADE = (1980, 1, 1, 0, 0, 0)  # a fixed time: the same files give the same archive


@functools.cache
def files() -> dict[str, bytes]:
    """The files by their paths. Raises SiteError if a package has no files to send."""
    return {**dict(_own()), **{path: content for name, _, _ in PACKAGES for path, content in _package(name)}}


@functools.cache
def name() -> str:
    """The name of the folder into which the archive is unpacked. It depends on the content."""
    total = hashlib.sha256()
    for path, content in sorted(files().items()):
        total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return f"torusrun-{__version__}-{total.hexdigest()[:16]}"


def packed() -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for path, content in sorted(files().items()):
            archive.writestr(zipfile.ZipInfo(path, MADE), content, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _own() -> Iterator[tuple[str, bytes]]:
    """This torusrun, installed or in a checkout, with the files that importlib.metadata reads."""
    yield from _below(ROOT / process.ENTRY / "torusrun", "torusrun")
    for name in ("orchestrator", "training", "templates", "containers"):
        yield from _below(ROOT / name, f"torusrun/{name}")
    metadata = f"torusrun-{__version__}.dist-info"
    yield f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: torusrun\nVersion: {__version__}\n".encode()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a checkout that was never installed
        entry_points = importlib.metadata.distribution("torusrun").read_text("entry_points.txt") or ""
        yield f"{metadata}/entry_points.txt", entry_points.encode()  # submitit looks for them


def _below(folder: Path, name: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix != ".pyc" and path.is_file():
            yield f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _package(name: str) -> Iterator[tuple[str, bytes]]:
    try:
        paths = importlib.metadata.distribution(name).files or []
    except importlib.metadata.PackageNotFoundError:
        raise SiteError(f"{name} is not installed here, so the login node cannot get it: reinstall torusrun") from None
    for path in paths:
        if ".." not in path.parts and (path.suffix == ".py" or path.name == "METADATA"):
            yield f"{NEEDS}/{name}/{path.as_posix()}", path.read_binary()
