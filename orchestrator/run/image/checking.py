"""Checks that the image of a plan fits the run and its site, before submission."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.terminal.remarks import busy, say
from torusrun.orchestrator.images import pyxis, sif
from torusrun.orchestrator.images.checks import check, facts, image_facts
from torusrun.orchestrator.images.checks.facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.checks.findings import Finding, Wanted
from torusrun.orchestrator.images.command import HOST_MPI, ON_PATH, Bind
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.images.shared import is_shared
from torusrun.orchestrator.keys.as_asked import uses_gpus
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.run.image import login, run_image
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.role_plans import of_images
from torusrun.training.counted import counted

FOUND_BY = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME")  # they set where programs and libraries are


def fitting(plan: Plan, image: Image | None = None) -> Image | None:
    """The image of a plan, by default the one that it names; None for a run without an image. It prints warnings.

    Raises UserError with all errors.
    """
    image = image or run_image.of_plan(plan)
    if image is None:
        return None
    with busy(f"looking into {image.path}"):
        results = findings(plan, image)
    if check.refused(results):
        raise UserError("\n".join(f"{image.path}: {finding}" for finding in results if finding.severity == "error"))
    for finding in results:
        if finding.severity == "warning":
            say(f"{image.path}: {finding}")
    if unseen := sum(finding.outcome == "could not be looked at" for finding in results):
        words = f"{counted(unseen, 'thing')} could not be looked at; `torusrun plan --check` names them"
        say(f"{image.path}: {words}")
    return image


def all_fitting(plan: Plan, known: Mapping[str, Image]) -> dict[str, Image]:
    """The images of all roles of a plan by their names, or those that are `known`; errors are those of `fitting`."""
    images = {name: fitting(role, known.get(name)) for name, role in of_images(plan).items()}
    return {name: image for name, image in images.items() if image}


def findings(plan: Plan, image: Image) -> list[Finding]:
    """The findings of all checks between the run, its image and its site.

    Raises UserError if this machine's runtime cannot start the image with the site's options.
    """
    here = login.login(plan.site)
    if pyxis.used(plan.site.container.runtime):
        run_image.pyxis_options(plan, image, str(plan.folder))
    if here.runtime:
        run_image.check_startable(plan, image, here.runtime)
    return check.check(_wanted(plan), _host(plan, here), _image(plan, image, here))


def _wanted(plan: Plan) -> Wanted:
    site, node = plan.site, plan.site.node
    options = [word.partition("=") for word in site.launcher_args]
    return Wanted(
        training=not plan.run.command,
        pyxis=pyxis.used(site.container.runtime),
        calls_mpi="maybe" if plan.run.command else "no",
        host_mpi=HOST_MPI if site.container.host_mpi else None,
        launcher=site.launcher,
        srun_mpi=next((value for name, _, value in options if name == "--mpi"), ""),
        cluster=not schedulers.get(site.scheduler).traits.one_machine,
        nodes=plan.run.nodes,
        ranks=plan.ranks,
        uses_gpus=uses_gpus(plan.run, site),
        gpus=(node.architecture,) if node.architecture else (),
        driver=site.container.driver,
        hcas=node.hcas,
    )


def _host(plan: Plan, here: login.Login) -> HostFacts:
    container = plan.site.container
    binds = [Bind.parse(text).host for text in container.bind]
    binds += [container.host_mpi] if container.host_mpi else []
    host = facts.host(here.runtime, plan.site.launcher, binds, here.environment, pyxis=pyxis.used(container.runtime))
    machine = sif.of_program(Path(plan.python))  # the nodes run this Python; the login node may differ
    words = f"the ELF header of {plan.python}, the nodes' Python, names {machine or 'no known processor'}"
    asked = {**host.asked, "runtime": here.asked, "machine": words}
    return replace(host, machine=machine, modules_failed=here.modules_failed, asked=asked)


def _image(plan: Plan, image: Image, here: login.Login) -> ImageFacts:
    path = Path(image.path)
    asks = _inside(plan, image, here.runtime, here.environment) if here.runtime else None
    known = image_facts.image(path, asks)
    if not asks:
        known = replace(known, asked={**known.asked, "start": here.asked})
    shared, own, seen = is_shared(path, expanded(plan.site.runs))
    return replace(known, shared=shared, local_folder=own, asked={**known.asked, "shared": seen})


def _inside(plan: Plan, image: Image, runtime: Runtime, environment: Mapping[str, str]) -> image_facts.Inside:
    """How to start the image for checks: like its ranks, as far as possible before the run exists."""
    container = run_image.container(plan, image, runtime)
    program, code = plan.run.command[0] if plan.run.command else "", plan.code
    binds = [bind for bind in container.binds if os.path.exists(bind.host)]
    directory = "/"
    if code and "/" in program and not any(mark in str(code) for mark in ":,"):
        binds.append(Bind(str(code), read_only=True))
        directory = str(code)
    return image_facts.Inside(
        replace(container, binds=tuple(binds), directory=directory),
        _variables(plan, image),
        program,
        _mpi_folders(plan),
        environment,
    )


def _mpi_folders(plan: Plan) -> list[str]:
    """The folders in the image where the host's MPI may be: its own folder, and the site's binds."""
    own = [HOST_MPI] if plan.site.container.host_mpi else []
    asked = (Bind.parse(text) for text in plan.site.container.bind)
    return [*own, *(bind.inside or bind.host for bind in asked)]


def _variables(plan: Plan, image: Image) -> dict[str, str]:
    """The variables that change which programs, libraries and packages the ranks find."""
    given = {name: value for name, value in plan.environment.items() if name in FOUND_BY}
    if own := plan.environment.get("PYTHONPATH"):
        given["PYTHONPATH"] = os.pathsep.join([*([ON_PATH] if image.bound_training else []), own])
    return given
