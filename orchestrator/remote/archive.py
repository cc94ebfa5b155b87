"""One archive of this torusrun and the packages that it needs, made from the installed files.

`orchestrator.remote.archive FILE` writes it as FILE, a program that needs only Python (`make pyz`).

So nothing is downloaded, and the login node gets the version that is in use here. Compiled modules are left out: the
packages work without them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from torusrun.orchestrator.base import process, strangers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.remote import boot
from torusrun.orchestrator.remote import one_file as one_file_start
from torusrun.orchestrator.remote.boot import NEEDS, PACKAGES

ALSO = ("METADATA", "LICENSE", "COPYING", "NOTICE")  # files of a package beside its modules
MADE = (1980, 1, 1, 0, 0, 0)  # a fixed time: the same files give the same archive


@functools.cache
def files() -> dict[str, bytes]:
    """The files by their paths. Raises SiteError if a package has no files to send."""
    return {**dict(_own()), **{path: content for name, _, _ in PACKAGES for path, content in _package(name)}}


@functools.cache
def name() -> str:
    """The name of the folder into which the archive is unpacked. It depends on the content."""
    return _named(files())


def _named(content: Mapping[str, bytes]) -> str:
    total = hashlib.sha256()
    for path, text in sorted(content.items()):
        total.update(f"{path}\0{hashlib.sha256(text).hexdigest()}\n".encode())
    return f"torusrun-{__version__}-{total.hexdigest()[:16]}"


def packed() -> bytes:
    return _zipped(files())


def one_file() -> bytes:
    """The content of `torusrun.pyz`: the archive, after a program that installs it and runs a verb.

    The shell passes the program to Python: to run it from an archive, Python opens twenty files more.
    """
    texts = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (strangers, boot, one_file_start)]
    texts[1] = texts[1].partition('\nif __name__ == "__main__":')[0]  # on a login node it is the program
    folders = re.compile(f"^{NEEDS}/[^/]+/")  # all packages in one folder: Python lists each folder of its path
    content = {folders.sub(f"{NEEDS}/", path): text for path, text in files().items()}
    start = "\n".join([*texts, f"NAME = {_named(content)!r}\nsys.exit(started(sys.argv[0]))\n"]).encode()
    read = f'file = open(sys.argv[0], "rb"); file.readline(); file.readline(); exec(file.read({len(start)}))'
    shell = f"""#!/bin/sh\nexec python3 -I -c 'import sys; del sys.argv[0]; {read}' "$0" "$@"\n"""
    return _zipped({**content, "__main__.py": f"import sys; {read}".encode()}, shell.encode() + start)


def _zipped(content: Mapping[str, bytes], first: bytes = b"") -> bytes:
    """A zip file of these files, after the bytes `first`."""
    written = io.BytesIO()
    written.write(first)
    with zipfile.ZipFile(written, "w") as archive:
        for path, text in sorted(content.items()):
            archive.writestr(zipfile.ZipInfo(path, MADE), text, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def _own() -> Iterator[tuple[str, bytes]]:
    """This torusrun, installed or in a checkout, with the files that importlib.metadata reads."""
    yield from _below(ROOT / process.ENTRY / "torusrun", "torusrun")
    for name in ("orchestrator", "training", "templates", "containers", "examples"):
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
        if ".." not in path.parts and (path.suffix == ".py" or path.name.startswith(ALSO)):
            yield f"{NEEDS}/{name}/{path.as_posix()}", path.read_binary()


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_bytes(one_file())
    file.chmod(0o755)
