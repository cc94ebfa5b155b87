"""The folder of the templates."""

from __future__ import annotations

from pathlib import Path


def templates() -> Path:
    """The folder of templates: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "data" / "templates"
    return installed if installed.is_dir() else package.parent / "templates"
