"""The image of a run: an image file, a SIF, or an image of another form, which is converted to a SIF once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.sif import is_sif, is_squashfs
from torusrun.orchestrator.keys.paths import absolute, expanded

LONGEST_NAME = 255  # bytes (limits.h, NAME_MAX)
Kind = Literal["image file", "SIF", "squashfs", "folder", "archive", "layout", "registry"]
TRANSPORTS: dict[str, Kind] = {"docker-archive": "archive", "oci-archive": "archive", "oci": "layout"}
REGISTRIES = ("docker", "oras", "library")
SQUASHED = (".sqsh", ".squashfs")  # for Pyxis
FORMS = (
    "an image file, a Dockerfile, a SIF, a .sqsh file, a sandbox folder, docker-archive:FILE, oci-archive:FILE, "
    "oci:FOLDER, docker://REFERENCE, oras://REFERENCE or library://REFERENCE"
)
REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")


@dataclass(frozen=True)
class NamedImage:
    """An image as a run names it. `place` is a path or a registry's reference."""

    kind: Kind
    text: str
    transport: str = ""
    place: str = ""

    @property
    def converted(self) -> bool:
        """Whether the image must first be converted to a SIF."""
        return self.kind in ("folder", "archive", "layout", "registry")


def parse(text: str) -> NamedImage:
    """The image that `text` names; reads its file's header. Raises UserError for a form that torusrun cannot run."""
    if wrong := misfit(text):
        raise UserError(f"the image {text!r}: {wrong}")
    transport, place = _split(text)
    if transport in REGISTRIES:
        return NamedImage("registry", text, transport, place)
    if transport:
        return NamedImage(TRANSPORTS[transport], text, transport, place)
    if not is_path(text) or text.endswith((".yaml", ".yml", ".def")) or names_dockerfile(text):
        return NamedImage("image file", text)
    path = absolute(text)
    if text.endswith(".sif") or is_sif(path):
        return NamedImage("SIF", text, place=str(path))
    if text.endswith(SQUASHED) or is_squashfs(path):
        return NamedImage("squashfs", text, place=str(path))
    return NamedImage("folder" if path.is_dir() else "image file", text, place=str(path))


def is_path(text: str) -> bool:
    """Whether `text` is a path alone, not the name of an image file or a form with a transport."""
    return not _split(text)[0] and (
        "/" in text or text.endswith((".yaml", ".yml", ".sif", ".def", *SQUASHED)) or names_dockerfile(text)
    )


def names_dockerfile(text: str) -> bool:
    """Whether the last part of a path is a usual name of Dockerfiles, as in train.Dockerfile or Dockerfile.cpu."""
    return re.fullmatch(r"(Dockerfile|Containerfile)(\..+)?|.+\.(?i:dockerfile)", text.rpartition("/")[2]) is not None


def typed(word: str) -> str:
    """A word of a command line as an image: a SIF or squashfs in the working directory needs no './'."""
    if _split(word)[0] or "/" in word:
        return word
    here = absolute(word)
    return f"./{word}" if is_sif(here) or is_squashfs(here) else word


def has_text(word: str) -> bool:
    """Whether the file that a word of a command line names may hold YAML: a run, or an image file."""
    return parse(beside(word, Path())).kind == "image file" and not (word.endswith(".def") or names_dockerfile(word))


def beside(text: str, folder: Path) -> str:
    """`text` with its path made absolute, from `folder`; unchanged without a path."""
    transport, place = _split(text)
    if transport in TRANSPORTS:
        return f"{transport}:{absolute(place, folder)}"
    return str(absolute(text, folder)) if is_path(text) else text


def misfit(text: str) -> str | None:
    """Why `text` cannot name an image, by its form alone; None if it can."""
    transport, place = _split(text)
    if transport not in REGISTRIES and any(len(part.encode()) > LONGEST_NAME for part in place.split("/")):
        return f"a part of its path is longer than {LONGEST_NAME} bytes, which no file system takes"
    if transport in REGISTRIES:
        return (
            None if REFERENCE.fullmatch(place) else f"{place!r} is not a reference, as in docker://debian:bookworm-slim"
        )
    if transport in TRANSPORTS and ":" in place:
        return f"it takes no tag; copy this image alone: skopeo copy {transport}:{place} oci:NEW"
    if transport in TRANSPORTS:
        return _no_path(place)
    if re.match(r"[a-z][a-z0-9+.-]*:", text):
        return f"this form is unknown; an image is {FORMS}"
    if re.search(r"\.tar(\.\w+)?$|\.tgz$", text):
        return f"write docker-archive:{text} for what `docker save` wrote, or oci-archive:{text}"
    return _no_path(text) if is_path(text) else None


def _split(text: str) -> tuple[str, str]:
    """(transport, place) of an image with a transport; else ('', text)."""
    for form in (rf"({'|'.join(REGISTRIES)})://(.*)", rf"({'|'.join(TRANSPORTS)}):(?!//[^/])(.*)"):
        if match := re.fullmatch(form, text):
            return match[1], match[2]
    return "", text


def _no_path(text: str) -> str | None:
    try:
        expanded(text)
    except UserError as error:
        return str(error)
    return None
