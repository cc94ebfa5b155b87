"""The folders of files that torusrun ships beside its code: templates, image files, examples."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """The folder of this name: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name
