"""The command that starts every rank in the placement's order."""

from __future__ import annotations

import os
from collections.abc import Mapping

from orchestrator import schedulers
from orchestrator.base import process
from orchestrator.runs.folder.run_folder import Attempt
from orchestrator.runs.plan.plan import Plan
from orchestrator.schedulers import launchers, remote_shell
from orchestrator.schedulers.launchers.launcher import PASSED, Launch, Launcher

VERSION_S = 30.0
STANDBY = "--standby"  # the option of a rank's wrapper that first waits for the next attempt


def launcher(plan: Plan, inherited: Mapping[str, str]) -> Launcher:
    """The site's launcher; its version shows to which MPI it belongs. Raises SiteError if there is no usable one."""
    program = plan.site.launcher
    if program not in launchers.ASKED:
        return launchers.named(program)
    own = {**inherited, **plan.environment}
    said = process.run([program, "--version"], timeout_s=VERSION_S, environment=own)
    return launchers.named(program, said.stdout + said.stderr)


def command(
    plan: Plan, attempt: Attempt, launcher: Launcher, inherited: Mapping[str, str] = os.environ, *, waits: bool = False
) -> list[str]:
    """The launcher's command, for the attempt's folder as working directory; each rank runs `orchestrator.job.rank`.

    If it `waits`, its ranks are those of the next attempt, and it runs beside the launcher of this one.
    """
    rank = process.module(plan.python, "orchestrator.job.rank", attempt.folder, *([STANDBY] if waits else []))
    return [*launcher.command(launch(plan, attempt, launcher, inherited)), *plan.site.launcher_args, *rank]


def environment(plan: Plan, attempt: Attempt, launcher: Launcher, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment: the job's variables, the plan's, and the launcher's."""
    return {**inherited, **plan.environment, **launcher.environment(launch(plan, attempt, launcher, inherited))}


def launch(plan: Plan, attempt: Attempt, launcher: Launcher, inherited: Mapping[str, str]) -> Launch:
    """The launcher's description of a run, in a job with the environment `inherited`."""
    return Launch(
        python=plan.python,
        nodes=plan.run.nodes,
        ranks=plan.ranks,
        cpus_per_rank=plan.site.node.cpus_per_rank,
        hostfile=attempt.hostfile,
        remote_shell=_remote_shell(plan, launcher),
        passed=tuple(name for name in PASSED if name in inherited),
        mpi=bool(plan.run.command),
        beside=plan.stands_by and not plan.elastic,
    )


def _remote_shell(plan: Plan, launcher: Launcher) -> tuple[str, ...] | None:
    """How the launcher reaches other hosts: by ssh, through the scheduler, or None if it needs neither."""
    scheduler, asked = schedulers.get(plan.site.scheduler), plan.site.remote_shell
    if asked == "ssh":
        return ("ssh",)
    if asked or scheduler.reach.for_every_mpi or (launcher.needs_shell and scheduler.reach.remote_command):
        return remote_shell.agent(scheduler, plan.python)
    return None
