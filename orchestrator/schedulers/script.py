"""The job script of an attempt: the scheduler's directives, then one body that all schedulers share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.private import UMASK
from torusrun.orchestrator.base.render.environment import Text, render, word
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.interface import Request, Scheduler
from torusrun.orchestrator.schedulers.software import activating, in_shell


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

    If it `loads`, it first loads the site's modules and runs its lines of `setup`, then further ones. A line that fails
    ends the script, and the record names it.
    """
    scheduler = schedulers.get(site.scheduler)
    lines = [*(loading(site) if loads else []), *(site.setup if loads else ()), *setup]
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


def loading(site: Site) -> list[str]:
    """The shell lines that load a site's modules and activate its software."""
    purge = ["module purge"] if site.purge_modules else []
    return [*purge, *(f"module load {word(name)}" for name in site.modules), *activating(site.software)]


def scratch(scheduler: Scheduler) -> str:
    """The shell's words for the job's own folder on each node, if the site has one, or else TMPDIR or /tmp."""
    found = "${TMPDIR:-/tmp}"
    for name in reversed(scheduler.variables.scratch):
        found = f"${{{name}:-{found}}}"
    return f'"{found}"'
