"""Assumptions about the job's launcher and scheduler on this machine, which is not a node of the job."""

from __future__ import annotations

import os

from orchestrator.base.environment import which
from orchestrator.base.errors import SiteError
from orchestrator.job.launch import launcher as asked
from orchestrator.runs.plan.plan import Plan
from orchestrator.schedulers import launchers
from orchestrator.schedulers.launchers.launcher import Launcher

OPEN_MPI = "mpirun (Open MPI) 4.1"


def launcher(plan: Plan) -> tuple[Launcher, list[str]]:
    """The site's launcher and notes; without a launcher on this machine, Open MPI 4's mpirun is assumed."""
    try:
        found = asked(plan, os.environ)
    except SiteError as error:
        note = f"{error}: the launcher's line is that of Open MPI 4; the job asks the launcher of its nodes"
        return launchers.named(plan.site.launcher, OPEN_MPI), [note]
    if plan.site.launcher in launchers.ASKED and plan.site.modules:
        return found, [f"the job asks {plan.site.launcher} for its version again, once the site's modules are loaded"]
    return found, []


def unavailable(argv: list[str]) -> list[str]:
    """A note if this machine lacks the submit command `argv`."""
    return [] if which(argv[0]) else [f"{argv[0]}: not found on this machine, which therefore cannot submit it"]
