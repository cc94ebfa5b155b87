"""The job script of an attempt: the scheduler's directives, then one body that all schedulers share.

The lines that activate software change the shell, so no program can do it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.private import UMASK
from torusrun.orchestrator.base.templates import Text, render, word
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.shared import PROGRAMS, Software
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.interface import Request, Scheduler


def activating(software: Software) -> list[str]:
    """The lines for bash, in their order; [] for no software."""
    root = str(expanded(software.root)) if software.root else ""
    return [
        *(["module purge"] if software.purge else []),
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


def job_script(
    site: Site,
    request: Request,
    *,
    attempt: Path,
    entry: Sequence[str],
    title: str,
    environment: Mapping[str, str],
    setup: Sequence[str] = (),
    umask: int = UMASK,
    held: bool = False,
    loads: bool = True,
    records_end: bool = True,
    several: bool = False,
) -> str:
    """The script's text: it runs `entry` in the folder `attempt`, where it records its end if it `records_end`.

    If a keeper starts it in a `held` allocation, it has no directives, and its job is the keeper's. If the job may
    begin `several` attempts, a step that fails before a later attempt is handed to the entry.

    If it `loads`, it first activates the site's software and runs its lines of `setup`, then further lines. A line that
    fails ends the script, and the record names it.
    """
    scheduler = schedulers.get(site.scheduler)
    lines = [*(activating(site.software) if loads else []), *(site.setup if loads else ()), *setup]
    return render(
        "job/script.sh.j2",
        title=Text(title),
        head=[] if held else [Text(line) for line in scheduler.script.head],
        own_output=scheduler.script.sends_output or held,
        directives=[] if held else [Text(line) for line in scheduler.directives(request)],
        attempt=attempt,
        records_end=records_end,
        several=several,
        errors=request.stderr.name,
        stdout=request.stdout,
        stderr=request.stderr,
        loads_modules=any(line.startswith("module ") for line in lines),
        # `told` is within a JSON string
        steps=[{"line": Text(in_shell(line)), "told": json.dumps(f"`{line}`")[1:-1]} for line in lines],
        environment=environment,
        scheduler=schedulers.reference(scheduler),
        umask=f"{umask:03o}",
        scratch=Text(scratch(scheduler)),
        entry=Text(" ".join(map(word, entry))),
    )


def scratch(scheduler: Scheduler) -> str:
    """The shell's words for the job's own folder on each node, if the site makes it, or else TMPDIR or /tmp."""
    folder = "${TMPDIR:-/tmp}"
    for name in reversed(scheduler.variables.scratch):
        folder = f"${{{name}:-{folder}}}"
    return f'"{folder}"'
