"""The Debian mirror of this machine, for image files that name none."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.image_keys import ImageFile

SOURCES = Path("/etc/apt")


def completed(image_file: ImageFile, sources: Path = SOURCES) -> ImageFile:
    """The image file with the mirror for its build. Raises UserError if this machine has none."""
    if image_file.base.debootstrap is None or image_file.base.mirror:
        return image_file
    return replace(image_file, base=replace(image_file.base, mirror=own(sources)))


def own(sources: Path = SOURCES) -> str:
    """The first mirror in this machine's apt sources, in either of their two forms."""
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob("*"))]
    text = "\n".join(f.read_text(encoding="utf-8", errors="replace") for f in files if f.is_file())
    found = re.search(r"^(?:deb(?:\s+\[[^\]]*\])?|URIs:)\s+(https?://\S+)", text, re.MULTILINE)
    if not found:
        raise UserError("this machine has no Debian mirror configured; name one in 'base.mirror' of the image file")
    return found[1].rstrip("/")
