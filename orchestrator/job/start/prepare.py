"""Writes the files that the ranks of an attempt read, once the hosts are known."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.environment import absolute_only
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.base.process import ENTRY
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.images import pyxis, runtime
from torusrun.orchestrator.images.command import ON_PATH, TRAINING, ContainerExec, variables
from torusrun.orchestrator.job.staging.order import StageEntry, StageOrder
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, RoleOrder
from torusrun.orchestrator.keys.main_role import awaited, main_name, services
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.roles import Ready, Role
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.placement.binding import node_type, of_gpus
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.plan.role_plans import of_service
from torusrun.orchestrator.run.plan.roles import gpus
from torusrun.orchestrator.run.program import command, training
from torusrun.orchestrator.run.program.what_runs import Program, ReadyCheck
from torusrun.orchestrator.schedulers.launchers import Launcher

VARIABLES = {"venv": "VIRTUAL_ENV", "conda": "CONDA_PREFIX"}  # that an active environment sets


def prepare(
    plan: Plan, run: RunFolder, attempt: Attempt, placement: Placement, images: Mapping[str, Image], launcher: Launcher
) -> Program:
    """Write the placement, the launcher's host file and the launch order; the program that every rank starts."""
    attempt.logs.mkdir(exist_ok=True)
    attempt.ranks.mkdir(exist_ok=True)
    if plan.run.roles or plan.run.each:
        attempt.roles.mkdir(exist_ok=True)
    write_json(attempt.placement, placement.as_json())
    write_text(attempt.hostfile, placement.hostfile)
    (command if plan.run.command else training).make_ready(plan, run, attempt)
    by_pyxis = pyxis.used(plan.site.container.runtime)
    image_runtime = runtime.required(plan.site.container.runtime) if images and not by_pyxis else None
    order = launch_order(plan, run, attempt, launcher, images, image_runtime)
    write_json(attempt.launch, order.as_json(), secret=True)  # it has values of env
    return order.roles[0].program


def launch_order(
    plan: Plan,
    run: RunFolder,
    attempt: Attempt,
    launcher: Launcher,
    images: Mapping[str, Image],
    image_runtime: runtime.Runtime | None,
) -> LaunchOrder:
    """The order for every rank's wrapper; `image_runtime` is the runtime that starts the images, if any."""
    in_image = bool(images) and pyxis.used(plan.site.container.runtime)

    def of_role(name: str, role: Role, of: Plan, **own: Any) -> RoleOrder:
        image = images.get(of.run.image or "")
        program = program_of(of, run, attempt, image)
        if of is not plan:
            own_files = {"TORUSRUN_METRICS": attempt.role_metrics(name), "TORUSRUN_HEARTBEAT": attempt.role_beat(name)}
            program = replace(program, environment={**program.environment, **{k: str(v) for k, v in own_files.items()}})
        if image and in_image:
            program = replace(program, environment={**variables(image.bound_training), **program.environment})
        container = _rank_image(of, image, program, image_runtime) if image and image_runtime else None
        shares = gpus(plan.run, plan.site, name)
        software = role.software.given or plan.run.staged_software
        python = {VARIABLES[kind]: str(expanded(folder)) for kind, folder in software.items()}
        # A role for each checkpoint waits for those, not for the start of the main role.
        after = tuple(other for other in waits.get(name, ()) if not (role.each and other == main))
        return RoleOrder(program, container, name, after=after, gpus=shares, python=python, **own)

    waits = awaited(plan.run)
    main = main_name(plan.run) if plan.run.roles else ""
    others = [
        of_role(
            name, role, of_service(plan, role), service=True, ready=_check(role.ready), alive=role.alive,
            restart=role.restart, each=bool(role.each), newest=role.newest,
            judges=str(command.checkpoints(plan, run)),
        )
        for name, role in services(plan.run).items()
    ]  # fmt: skip
    return LaunchOrder(
        run=plan.run_id,
        roles=(of_role(main, plan.run.roles.get(main, Role()), plan, **_of_another(plan)), *others),
        numbers=launcher.numbers,
        hcas=plan.site.node.hcas,
        beside=of_gpus(node_type(plan.site.node)),
        interface=plan.site.node.interface,
        kill_after_s=plan.site.kill_after_s,
        umask=plan.site.umask,
        host_variable=schedulers.get(plan.site.scheduler).variables.host,
        gpus=plan.site.gpus if plan.site.gpus < plan.site.node.gpus else None,
        in_image=in_image,
        stage=_stage(plan, images.values()),
        secrets=tuple(plan.secrets),
    )


def copied_to_nodes(site: Site) -> bool:
    """Whether every node starts its own copy of an image, which its first rank verifies; enroot makes its own."""
    return bool(site.stage) and not pyxis.used(site.container.runtime)


def _stage(plan: Plan, images: Iterable[Image]) -> StageOrder | None:
    """What the hosts stage, images where the site names a folder for it; None for nothing."""
    entries = [StageEntry(name, str(expanded(path))) for name, path in plan.run.staged]
    if copied_to_nodes(plan.site):
        sums = {image.path: image.sha256 for image in images}
        entries += [StageEntry("", path, sha256) for path, sha256 in sums.items()]
    if not entries:
        return None
    return StageOrder(plan.run_id, plan.site.stage or "", tuple(entries), token_hex(32), plan.site.node.interface)


def _of_another(plan: Plan) -> dict[str, Any]:
    """What a run judges: the checkpoints of another run."""
    if not plan.run.judged:
        return {}
    other = RunFolder(Path(plan.run.judged))
    folder = command.checkpoints(read_plan(other, 1), other)
    return {"each": True, "newest": plan.run.newest, "judges": str(folder), "of_run": str(other.folder)}


def _check(ready: Ready) -> ReadyCheck:
    kind = next(iter(ready.checks), "")
    value = "" if kind in ("", "tcp") else str(getattr(ready, kind))
    return ReadyCheck(kind, value, ready.within_s)


def program_of(plan: Plan, run: RunFolder, attempt: Attempt, image: Image | None) -> Program:
    """The program of the ranks: the user's command, or torusrun's own training."""
    threads = {"OMP_NUM_THREADS": str(plan.site.cpus_per_rank)}
    if plan.run.command:
        program = command.program(plan, run, attempt, ON_PATH if image else str(ROOT / ENTRY))
        return replace(program, environment={**threads, **program.environment})
    path = _python_path(plan, run, image)
    own = {"PYTHONPATH": path} if path else {}
    program = training.program(plan, attempt, *(("python3", TRAINING) if image else (plan.python, ROOT)))
    return replace(program, environment={**threads, **plan.environment, **own})


def _python_path(plan: Plan, run: RunFolder, image: Image | None) -> str:
    """PYTHONPATH with the user's own entries and the copy of the user's code; '' to change nothing."""
    own = plan.environment.get("PYTHONPATH")
    entries = []
    if own or (plan.code and not image):
        entries.append(absolute_only(own or os.environ.get("PYTHONPATH", "")))
    if plan.code:
        entries.append(str(run.code))
    return os.pathsep.join(filter(None, entries))


def _rank_image(plan: Plan, image: Image, program: Program, image_runtime: runtime.Runtime) -> ContainerExec:
    from torusrun.orchestrator.run.image import run_image  # half of a start's time

    container = run_image.container(plan, image, image_runtime)
    return replace(container, directory=program.directory or container.directory)
