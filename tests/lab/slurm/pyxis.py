"""Pyxis and enroot, which no package registry has: the lab takes them from a folder that somebody has filled.

FOLDER/plugstack.conf   Slurm's line for the plug-in: required FOLDER/lib/spank_pyxis.so runtime_path=/run/pyxis
FOLDER/bin/             enroot and its own programs, with an etc/enroot/enroot.conf whose folders are below /tmp
FOLDER/images/          torch.sqsh (Python, PyTorch, scikit-learn, Pillow) and tiny.sqsh (busybox)

The plug-in has to be compiled with the headers of this Slurm (`slurm/spank.h` of libslurm-dev).
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TORUSRUN_PYXIS_LAB"
NEEDED = ("plugstack.conf", "bin/enroot", "images/torch.sqsh", "images/tiny.sqsh")


def folder() -> Path | None:
    """The folder with Pyxis and enroot; None without one."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and not why_not_here() else None


def why_not_here() -> str:
    """Why there is no Pyxis, and how to have it; '' if it is there."""
    how = f"build NVIDIA's pyxis and enroot, and name their folder in {VARIABLE} (tests/lab/slurm/pyxis.py says what)"
    named = os.environ.get(VARIABLE)
    if not named:
        return f"Pyxis is in no package registry: {how}"
    missing = [name for name in NEEDED if not Path(named, name).exists()]
    return f"{named} has no {missing[0]}: {how}" if missing else ""
