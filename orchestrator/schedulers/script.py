"""The job script of an attempt: the scheduler's directives over one body that all schedulers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.render.environment import Text, render, word
from orchestrator.schedulers.seam import Request, Scheduler


def job_script(
    scheduler: Scheduler,
    request: Request,
    *,
    attempt: Path,
    entry: Sequence[str],
    title: str,
    modules: Sequence[str],
    environment: Mapping[str, str],
) -> str:
    """The script's text: it runs `entry` in the folder `attempt`, where it records its end."""
    return render(
        scheduler.template,
        title=Text(title),
        directives=[Text(line) for line in scheduler.directives(request)],
        attempt=attempt,
        stdout=request.stdout,
        stderr=request.stderr,
        modules=modules,
        environment=environment,
        scheduler=scheduler.name,
        scratch=Text(scratch(scheduler)),
        entry=Text(" ".join(map(word, entry))),
    )


def scratch(scheduler: Scheduler) -> str:
    """The shell's words for a folder of the job's own on each node, where the site has one."""
    found = "${TMPDIR:-/tmp}"
    for name in reversed(scheduler.scratch_variables):
        found = f"${{{name}:-{found}}}"
    return f'"{found}"'
