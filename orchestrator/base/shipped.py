"""The folders of files that torusrun ships with its code: templates, image files, examples."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the folder of `orchestrator`, `training` and the folders of files


def shipped(name: str) -> Path:
    """The folder of this name, beside the package's code or at the top of a checkout."""
    return ROOT / name


def examples() -> dict[str, Path]:
    """The run files of the examples by their names: their paths below the folder of examples, without .yaml."""
    folder = shipped("examples")
    files = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
    return {name: path for name, path in files.items() if path.name != "site.yaml"}
