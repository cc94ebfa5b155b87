"""Wheels of torusrun as it runs here, and of the packages that it needs, made from the installed files.

So nothing is downloaded, and the login node gets the version that is in use here. Compiled modules are left out: the
packages that are sent do without them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.base.errors import SiteError
from orchestrator.base.render.templates import templates
from orchestrator.base.version import __version__
from orchestrator.images.definitions.image_file import shipped

# What the verbs import on a login node: package, module, oldest version that serves. `rich` draws on terminals alone.
DEPENDENCIES = (
    ("pyyaml", "yaml", "6.0"),
    ("jinja2", "jinja2", "3.1"),
    ("markupsafe", "markupsafe", "2.0"),
    ("submitit", "submitit", "1.5"),
    ("cloudpickle", "cloudpickle", "1.2"),
    ("typing_extensions", "typing_extensions", "3.7"),
    ("spython", "spython", "0.3"),
)
MADE = (1980, 1, 1, 0, 0, 0)  # no time of its own: the same files are the same wheel


@dataclass(frozen=True)
class Wheel:
    """The files of one package. `at_least` is the oldest version that serves in its place; '' where none does."""

    name: str
    module: str
    version: str
    at_least: str
    files: dict[str, bytes]

    @property
    def folder(self) -> str:
        """The name of the folder that it is unpacked into: of other content, another one."""
        total = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
        return f"{self.name}-{self.version}-{total.hexdigest()[:16]}"

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "module": self.module, "at_least": self.at_least, "folder": self.folder}

    def packed(self) -> bytes:
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for path in sorted(self.files):
                archive.writestr(zipfile.ZipInfo(path, MADE), self.files[path], zipfile.ZIP_DEFLATED)
        return written.getvalue()


@functools.cache
def all_wheels() -> list[Wheel]:
    """torusrun first, then what it needs. Raises SiteError where a package has no files to send."""
    return [own(), *(_dependency(*needed) for needed in DEPENDENCIES)]


def own() -> Wheel:
    """torusrun as it runs here, installed or in a checkout."""
    package = Path(orchestrator.__file__).resolve().parent
    files = {f"orchestrator/data/templates/{path}": content for path, content in _content(templates())}
    files |= {f"orchestrator/data/containers/{path}": content for path, content in _content(shipped())}
    for folder in (package, package.parent / "training"):
        files |= {f"{folder.name}/{path}": content for path, content in _content(folder)}
    return Wheel("torusrun", "orchestrator", __version__, "", files | _metadata())


def _content(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix != ".pyc" and path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _metadata() -> dict[str, bytes]:
    """What importlib.metadata reads: the version, and the entry points that submitit looks for."""
    files = {"METADATA": f"Metadata-Version: 2.1\nName: torusrun\nVersion: {__version__}\n"}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a checkout that was never installed
        files["entry_points.txt"] = importlib.metadata.distribution("torusrun").read_text("entry_points.txt") or ""
    return {f"torusrun-{__version__}.dist-info/{file}": text.encode() for file, text in files.items()}


def _dependency(name: str, module: str, at_least: str) -> Wheel:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise SiteError(f"{name} is not installed here, so the login node cannot get it: reinstall torusrun") from None
    listed = [path for path in found.files or [] if path.suffix == ".py" or path.name == "METADATA"]
    files = {path.as_posix(): path.read_binary() for path in listed if ".." not in path.parts}
    return Wheel(name, module, found.version, at_least, files)
