"""The folders of files that torusrun ships with its code: templates, image files, examples."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the folder of `orchestrator`, `training` and the folders of files


SENT = re.compile(r"torusrun-.+-[0-9a-f]{16}")  # the name of a folder that was sent to a login node (remote/archive.py)


def without_sent(path: str) -> str:
    """A search path without this torusrun and the packages that were sent to a login node with it."""
    sent = ROOT.parent
    if not SENT.fullmatch(sent.name):
        return path
    kept = (entry for entry in path.split(os.pathsep) if not Path(os.path.realpath(entry)).is_relative_to(sent))
    return os.pathsep.join(kept)


def shipped(name: str) -> Path:
    """The folder of this name, beside the package's code or at the top of a checkout."""
    return ROOT / name


def examples() -> dict[str, Path]:
    """The run files of the examples by their names: their paths below the folder of examples, without .yaml."""
    folder = shipped("examples")
    files = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}
    return {name: path for name, path in files.items() if path.name != "site.yaml"}
