"""The command that starts every rank in the placement's order."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import replace

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.schedulers import launchers, remote_shell
from torusrun.orchestrator.schedulers.launchers import PASSED, Launch, Launcher

VERSION_S = 30.0


def launcher(plan: Plan, inherited: Mapping[str, str]) -> Launcher:
    """The site's launcher; its version shows to which MPI it belongs. Raises SiteError for an unknown MPI."""
    program = plan.site.launcher
    if program not in launchers.ASKED:
        return launchers.named(program)
    own = {**inherited, **plan.jobs_environment}
    version = process.run([program, "--version"], timeout_s=VERSION_S, environment=own)
    return launchers.named(program, version.stdout + version.stderr)


def command(
    plan: Plan,
    attempt: Attempt,
    launcher: Launcher,
    inherited: Mapping[str, str] = os.environ,
    *,
    image: Image | None = None,
) -> list[str]:
    """The launcher's command, for the attempt's folder as working directory; each rank runs `orchestrator.job.rank`.

    If the site has Pyxis, the launcher starts them in `image`.
    """
    if image and pyxis.used(plan.site.container.runtime):
        return _in_image(plan, attempt, launcher, inherited, image)
    rank = process.module(plan.python, "torusrun.orchestrator.job.rank", attempt.folder)
    return [*launcher.command(launch(plan, attempt, launcher, inherited)), *plan.site.launcher_args, *rank]


def _in_image(
    plan: Plan, attempt: Attempt, launcher: Launcher, inherited: Mapping[str, str], image: Image
) -> list[str]:
    """The command of a launcher that puts the ranks into their image itself."""
    from torusrun.orchestrator.run.image import run_image  # half of a start's time

    given = {**inherited, **_gpus(plan), **plan.jobs_environment}
    started = replace(launch(plan, attempt, launcher, inherited), exported=pyxis.exported(given))
    options = run_image.pyxis_options(plan, image, str(attempt.folder))
    rank = pyxis.rank("torusrun.orchestrator.job.rank", attempt.folder)
    return [*launcher.command(started), *options, *plan.site.launcher_args, *rank]


def _gpus(plan: Plan) -> dict[str, str]:
    """The variables by which enroot brings the node's GPUs into the image, or does not."""
    if not (plan.run.image and pyxis.used(plan.site.container.runtime)):
        return {}
    from torusrun.orchestrator.run.image import run_image

    return dict(pyxis.GPUS if run_image.gpu(plan) else pyxis.NO_GPUS)


def environment(plan: Plan, attempt: Attempt, launcher: Launcher, inherited: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment: the job's variables, the plan's, and the launcher's."""
    own = launcher.environment(launch(plan, attempt, launcher, inherited))
    return {**inherited, **_gpus(plan), **plan.jobs_environment, **own}


def launch(plan: Plan, attempt: Attempt, launcher: Launcher, inherited: Mapping[str, str]) -> Launch:
    """The launcher's description of a run, in a job with the environment `inherited`."""
    called = inherited.get(schedulers.get(plan.site.scheduler).variables.host, "")
    return Launch(
        python=plan.python,
        nodes=plan.all_nodes,
        ranks=plan.all_ranks,
        cpus_per_rank=plan.site.cpus_per_rank,
        hostfile=attempt.hostfile,
        remote_shell=_remote_shell(plan, launcher),
        passed=tuple(name for name in PASSED if name in inherited),
        mpi=bool(plan.run.command),
        uneven=bool(plan.run.roles),
        kill_after_s=plan.site.kill_after_s,
        called="" if same_host(called, socket.gethostname()) else called,
    )


def _remote_shell(plan: Plan, launcher: Launcher) -> tuple[str, ...] | None:
    """How the launcher reaches other hosts: by ssh, through the scheduler, or None if it needs neither."""
    scheduler, asked = schedulers.get(plan.site.scheduler), plan.site.remote_shell
    if asked == "ssh":
        return ("ssh",)
    if asked or scheduler.reach.for_every_mpi or (launcher.needs_shell and scheduler.reach.remote_command):
        return remote_shell.agent(scheduler, plan.python)
    return None
