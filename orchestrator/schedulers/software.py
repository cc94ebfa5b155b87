"""The shell lines that activate software, each kind as it wants it. They change the shell, so no program can do it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from torusrun.orchestrator.base.render.environment import word
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.software import PROGRAMS, Software


def activating(software: Software) -> list[str]:
    """The lines for bash, in their order; [] for no software."""
    root = str(expanded(software.root)) if software.root else ""
    return [
        *(f"module use {word(expanded(folder))}" for folder in software.module_paths),
        *(f"module load {word(name)}" for name in software.modules),
        *([f"source {word(expanded(software.venv) / 'bin' / 'activate')}"] if software.venv else []),
        *(_conda(_place(software.conda), root) if software.conda else ()),
        *(_spack(_place(software.spack), root) if software.spack else ()),
    ]


def in_shell(line: str) -> str:
    """The line as the shell gets it: its `torusrun_load` notices modules that do not load although nothing says so."""
    return re.sub(r"^module load (?=([\w./+:][\w./+:-]*|'[^']*')$)", "torusrun_load ", line)


def _conda(name: str, root: str) -> Iterator[str]:
    if os.path.basename(root) in PROGRAMS:
        yield f'eval "$({word(root)} shell hook --shell bash)"'
        yield f"{os.path.basename(root)} activate {word(name)}"
        return
    yield f"source {word(f'{root}/etc/profile.d/conda.sh')}" if root else 'eval "$(conda shell.bash hook)"'
    yield f"conda activate {word(name)}"


def _spack(name: str, root: str) -> Iterator[str]:
    if root:
        yield f"source {word(f'{root}/share/spack/setup-env.sh')}"
    yield f"spack env activate {word(name)}"


def _place(name: str) -> str:
    """A folder with its ~ expanded; a name as it is."""
    return str(expanded(name)) if "/" in name else name
