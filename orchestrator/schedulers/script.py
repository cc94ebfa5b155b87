"""The job script of an attempt: the scheduler's directives, then one body that all schedulers share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.base.private import UMASK
from orchestrator.base.render.environment import Text, render, word
from orchestrator.schedulers import reference
from orchestrator.schedulers.interface import Request, Scheduler


def job_script(
    scheduler: Scheduler,
    request: Request,
    *,
    attempt: Path,
    entry: Sequence[str],
    title: str,
    modules: Sequence[str],
    environment: Mapping[str, str],
    purge_modules: bool = False,
    setup: Sequence[str] = (),
    umask: int = UMASK,
    held: bool = False,
) -> str:
    """The script's text: it runs `entry` in the folder `attempt`, where it records its end.

    If a keeper starts it in a `held` allocation, it has no directives, and its job is the keeper's.

    First it loads `modules` and runs the lines of `setup`. A line that fails ends the script, and the record names it.
    """
    return render(
        "job/script.sh.j2",
        title=Text(title),
        head=[] if held else [Text(line) for line in scheduler.script.head],
        own_output=scheduler.script.sends_output or held,
        directives=[] if held else [Text(line) for line in scheduler.directives(request)],
        attempt=attempt,
        stdout=request.stdout,
        stderr=request.stderr,
        modules=modules,
        purge_modules=purge_modules,
        steps=_steps(modules, purge_modules, setup),
        environment=environment,
        scheduler=reference(scheduler),
        umask=f"{umask:03o}",
        scratch=Text(scratch(scheduler)),
        entry=Text(" ".join(map(word, entry))),
    )


def _steps(modules: Sequence[str], purge_modules: bool, setup: Sequence[str]) -> list[dict[str, str]]:
    """The lines that run before the entry, and their names for the record of a failure, within a JSON string."""
    lines = [*loading(modules, purge_modules), *setup]
    return [{"line": Text(line), "told": json.dumps(f"`{line}`")[1:-1]} for line in lines]


def loading(modules: Sequence[str], purge_modules: bool) -> list[str]:
    return [*(["module purge"] if purge_modules else []), *(f"module load {word(name)}" for name in modules)]


def scratch(scheduler: Scheduler) -> str:
    """The shell's words for the job's own folder on each node, if the site has one, or else TMPDIR or /tmp."""
    found = "${TMPDIR:-/tmp}"
    for name in reversed(scheduler.variables.scratch):
        found = f"${{{name}:-{found}}}"
    return f'"{found}"'
