"""The image of a plan: whether it is built, whether it fits, and how the ranks run in it."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.containers import check, facts, image_file, mounts, prepare, runtime
from orchestrator.containers.cache import CachedImage
from orchestrator.containers.command import Bind, ContainerExec
from orchestrator.containers.findings import Finding
from orchestrator.containers.inputs import file_checksum
from orchestrator.errors import UserError
from orchestrator.images.building import cache
from orchestrator.images.kept import Image
from orchestrator.plans.plan import Plan
from orchestrator.spec.paths import absolute
from orchestrator.spec.site import Site


def of_plan(plan: Plan) -> Image | None:
    """The image of a plan; None for a run without one. Raises UserError when it is not built or not there."""
    if plan.run.image is None:
        return None
    if plan.run.image.endswith(".sif"):
        return _own(absolute(plan.run.image))
    entry = newest(plan.run.image, plan.site)
    if entry is None:
        raise UserError(
            f"the image {plan.run.image!r} is not built for this site; `torusrun build` it with the same --site"
        )
    bound = entry.labels.get("torusrun.training", "bound") == "bound"
    return Image(
        str(entry.path), entry.sha256, entry.name, entry.key, bound, entry.labels, entry.versions, entry.definition
    )


def newest(source: str, site: Site) -> CachedImage | None:
    """The newest image that was built of an image file as it is written now, from whatever packages."""
    path = image_file.find(source)
    sources = prepare.sources(path, site.container.mpi == "host", site.container.compression or "")
    return cache(site).newest_of(sources)


def _own(path: Path) -> Image:
    try:
        return Image(str(path), file_checksum(path), path.stem)
    except OSError as error:
        raise UserError(f"{path}: the image cannot be read: {error.strerror}") from None


def container(plan: Plan, image: Image, found: runtime.Runtime) -> ContainerExec:
    """How this plan's ranks run in its image; they see the run folder, the training, and what the site binds."""
    site = plan.site.container
    binds = (
        Bind(str(plan.folder)),
        *((Bind(folder),) if (folder := plan.run.checkpoints.folder) and os.path.isabs(folder) else ()),
        *mounts.needed(image.bound_training, site.host_mpi if site.mpi == "host" else None),
        *(Bind.parse(text) for text in site.bind),
    )
    gpus = plan.site.node.gpus > 0 and (bool(plan.run.command) or plan.run.train.device != "cpu")
    return ContainerExec(found, image.path, binds, gpus, str(plan.folder), plan.site.container.args)


def fitting(plan: Plan) -> Image | None:
    """The image of a plan, None for a run without one. Raises UserError with all that does not fit."""
    image = of_plan(plan)
    if image is None:
        return None
    wrong = [finding for finding in findings(plan, image) if finding.severity == "error"]
    if wrong:
        raise UserError("\n".join(f"{image.path}: {finding}" for finding in wrong))
    return image


def findings(plan: Plan, image: Image) -> list[Finding]:
    """What does not fit between the run, its image and its site."""
    site, node = plan.site.container, plan.site.node
    found = runtime.find(site.runtime)
    binds = [Bind.parse(text).host for text in site.bind] + ([site.host_mpi] if site.host_mpi else [])
    wanted = check.Wanted(
        host_mpi=site.mpi == "host",
        gpus=(node.architecture,) if node.architecture else (),
        driver=site.driver,
        training=not plan.run.command,
    )
    where = ContainerExec(found, image.path, mounts.needed(image.bound_training)) if found else None
    host = facts.host(found, plan.site.launcher, binds)
    return check.check(wanted, host, facts.image(Path(image.path), where), _image_file(plan))


def unbuilt(plan: Plan) -> list[Finding] | None:
    """What is known of a plan's image before it is built; None when it is built, or no image file."""
    own = _image_file(plan)
    if own is None or newest(str(plan.run.image), plan.site):
        return None
    site = plan.site.container
    wanted = check.Wanted(builds=site.build_on == "login", fakeroot=site.build == "fakeroot")
    return check.check(wanted, facts.host(runtime.find(site.runtime), plan.site.launcher), None, own)


def _image_file(plan: Plan) -> image_file.ImageFile | None:
    """The image file that a plan's image is built of; None for a SIF, or no image."""
    source = plan.run.image
    return None if source is None or source.endswith(".sif") else image_file.load(image_file.find(source))
