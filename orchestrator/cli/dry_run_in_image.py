"""The container of a dry run: the runtime that the job will find, and the command that starts rank 0's program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torusrun.orchestrator.images.command import Bind, SecretVariables
from torusrun.orchestrator.images.runtime import COMMANDS, Runtime
from torusrun.orchestrator.job.image.contained import start
from torusrun.orchestrator.job.staging.node_folder import SCRATCH
from torusrun.orchestrator.job.staging.order import moved
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.orchestrator.run.image.login import login
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.training.files.trusted import own_folder

ASSUMED_VERSION = (4, 0)  # of a runtime that is not on this machine; it keeps values unchanged


def runtime(plan: Plan, notes: list[str]) -> Runtime:
    """The runtime on this machine with the site's modules, or the runtime that the job is assumed to have."""
    here = login(plan.site)
    if here.runtime:
        return here.runtime
    command = plan.site.container.runtime or COMMANDS[0]
    notes.append(f"no container runtime is found here ({here.asked}); the job is assumed to find {command}")
    return Runtime(command, "singularity" if "singularity" in command else "apptainer", ASSUMED_VERSION)


def command(rank: Rank, program: Program, hidden: Mapping[str, str]) -> list[str] | None:
    """The command that starts the rank's program in its image, or in the node's own copy if the site stages it.

    None without an image.
    """
    image, file = rank.role.container, rank.attempt.rank_variables(rank.number)
    if not image:
        return None
    if order := rank.order.stage:
        folder = own_folder(order.folder or f"${SCRATCH}")
        copies = {entry.path: str(folder / entry.sha256[:16]) for entry in order.entries if entry.sha256}
        bound = (*image.binds, Bind(str(folder)))
        image = replace(image, image=moved(image.image, copies), binds=bound)
    return list(start(image, program.argv, program.environment, {}, file, SecretVariables(hidden)).argv)
