"""Environments of Python that run from their copies: scripts in bin/ that name the source's folder get the copy's."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

MARKS = "pyvenv.cfg", "conda-meta"  # a venv has the first in it, a conda environment the second
LARGEST_BYTES = 1 << 20


def is_environment(copy: Path) -> bool:
    """Whether a copy is a venv or a conda environment."""
    return any((copy / mark).exists() for mark in MARKS)


def settle(copy: Path, sources: Iterable[str], place: Path) -> None:
    """Write `place`, where the copy of an environment will be, in place of its `sources` into the scripts of bin/."""
    named = re.compile(rb"(?:%b)(?=[/'\"\s])" % b"|".join(re.escape(os.fsencode(source)) for source in sources))
    for script in (copy / "bin").iterdir():
        status = script.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_BYTES:
            text = script.read_bytes()
            if text.startswith(b"#!") or script.name.lower().startswith("activate"):
                script.write_bytes(named.sub(lambda _: os.fsencode(place), text))
