"""Finds an image file, `containers/NAME.yaml`, by its name or path, and reads it."""

from __future__ import annotations

import re
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shipped import shipped
from torusrun.orchestrator.images.definitions.dockerfile.instructions import is_dockerfile, is_name
from torusrun.orchestrator.images.definitions.image_keys import Base, Cuda, File, ImageFile, ImageMpi, Python
from torusrun.orchestrator.images.definitions.misfits import misfits
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.orchestrator.keys.read import Marks, read
from torusrun.training.recipe.near import did_you_mean

__all__ = ["Base", "Cuda", "File", "ImageFile", "ImageMpi", "Python", "find", "load"]


def find(name: str, beside: Path = Path()) -> Path:
    """The path of an image file: as it is given (a path, or a Dockerfile), or by the name of a shipped one."""
    if "/" in name or name.endswith((".yaml", ".yml", ".def")) or is_name(name):
        return beside / expanded(name)
    if (path := shipped("containers") / f"{name}.yaml").is_file():
        return path
    known = sorted(p.stem for p in shipped("containers").glob("*.yaml"))
    raise UserError(f"there is no image file {name!r} (shipped: {', '.join(known)}){did_you_mean(name, known)}")


def load(path: Path) -> ImageFile:
    """The image file at `path`, or one that names the definition or Dockerfile at `path`.

    Raises SpecError with every mistake.
    """
    if path.suffix == ".def":
        return ImageFile(_name(path.stem), definition=path.name)
    text = read_text(path, "image file")
    if is_dockerfile(path, text):
        return ImageFile(_name(path.absolute().parent.name), dockerfile=path.name)
    image_file, marks = read(ImageFile, text, str(path))
    if problems := [Problem(_mark(marks, key, path), message) for key, message in misfits(image_file)]:
        raise SpecError(problems)
    return image_file


def _name(text: str) -> str:
    """A text as the name of an image."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63]
    return name if name[:1].isalpha() else f"image-{name}"[:63]


def _mark(marks: Marks, key: str, path: Path) -> Mark:
    while key and key not in marks:
        key = key.rpartition(".")[0]
    return marks.get(key, Mark(str(path), 1, 1))
