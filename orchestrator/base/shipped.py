"""The folders of files that torusrun ships with its code: templates, image files, examples."""

from __future__ import annotations

from pathlib import Path


def shipped(name: str) -> Path:
    """The folder of this name: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data" / name
    return installed if installed.is_dir() else package.parent / name


def examples() -> dict[str, Path]:
    """The run files of the examples by their names: their paths below the folder of examples, without .yaml."""
    folder = shipped("examples")
    files = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
    return {name: path for name, path in files.items() if path.name != "site.yaml"}
