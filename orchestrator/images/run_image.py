"""The image of a run: which one its plan means, whether it is built, and how the site's programs run in it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from orchestrator.containers import build as builds
from orchestrator.containers import check, facts, mounts, recipe, runtime
from orchestrator.containers.cache import Cache, Entry
from orchestrator.containers.command import Bind, Container
from orchestrator.containers.definition import Variant, render
from orchestrator.containers.findings import Finding
from orchestrator.containers.inputs import Inputs, collect, file_sum
from orchestrator.containers.mirror import completed
from orchestrator.errors import SiteError, UserError
from orchestrator.plans.plan import Plan
from orchestrator.runs.files import damaged, read_object, required, write_json, write_text
from orchestrator.runs.folder import RunFolder
from orchestrator.spec.paths import absolute, expanded
from orchestrator.spec.site import Site


@dataclass(frozen=True)
class Image:
    """An image that a run uses, as the run folder keeps it."""

    path: str
    sha256: str
    name: str
    key: str = ""
    bound_training: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    definition: str = ""


def cache(site: Site) -> Cache:
    """The site's folder of built images."""
    return Cache(expanded(site.container.cache))


def prepare(source: str, site: Site, *, offline: bool = False, wheelhouse: Path | None = None) -> Prepared:
    """What building the recipe `source` (a name or a path) for a site takes. Raises UserError for what cannot be."""
    container = site.container
    options = builds.Options(
        mode=container.build,
        compression=container.compression or "",
        wheelhouse=wheelhouse,
        temporary=Path(container.temporary) if container.temporary else None,
    )
    path = recipe.find(source)
    name, inputs = builds.prepare(path, Variant(host_mpi=container.mpi == "host", offline=offline), options)
    return Prepared(path, name, inputs, options)


@dataclass(frozen=True)
class Prepared:
    """A recipe, ready to be built or to be looked up in the cache."""

    path: Path
    name: str
    inputs: Inputs
    options: builds.Options

    @property
    def key(self) -> str:
        return self.inputs.key


def build(prepared: Prepared, site: Site, progress: Callable[[str], None]) -> Entry:
    """The image, from the cache or built here and now. Raises BuildFailed with the log's place."""

    def required() -> runtime.Runtime:
        return runtime.required(site.container.runtime)

    def examine(path: Path) -> dict[str, str]:
        return facts.image(path, Container(required(), str(path))).versions

    options = replace(prepared.options, temporary=_here(prepared.options.temporary))
    return builds.build(prepared.name, prepared.inputs, cache(site), required, options, progress, examine)


def _here(folder: Path | None) -> Path | None:
    """A folder with the variables filled in that hold where the build runs, which may be in a job."""
    if folder is None:
        return None
    place = os.path.expandvars(expanded(folder))
    if "$" in place:
        raise UserError(f"'container.temporary' {str(folder)!r} names a variable that is not set here: build in a job")
    return Path(place)


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


def newest(source: str, site: Site) -> Entry | None:
    """The newest image that was built of a recipe as it is written now, with or without a wheelhouse."""
    path = recipe.find(source)
    loaded = completed(recipe.load(path))
    found = []
    for wheelhouse, offline in ((False, False), (True, False), (True, True)):
        variant = Variant(host_mpi=site.container.mpi == "host", wheelhouse=wheelhouse, offline=offline)
        inputs = collect(loaded, render(loaded, variant), path.parent, site.container.compression or "")
        if entry := cache(site).get(inputs.key):
            found.append(entry)
    return max(found, key=lambda entry: entry.built_s, default=None)


def _own(path: Path) -> Image:
    try:
        return Image(str(path), file_sum(path), path.stem)
    except OSError as error:
        raise UserError(f"{path}: the image cannot be read: {error.strerror}") from None


def container(plan: Plan, image: Image, found: runtime.Runtime) -> Container:
    """How this plan's ranks run in its image; they see the run folder, the training, and what the site binds."""
    site = plan.site.container
    binds = (
        Bind(str(plan.folder)),
        *((Bind(folder),) if (folder := plan.run.checkpoints.folder) and os.path.isabs(folder) else ()),
        *mounts.needed(image.bound_training, site.host_mpi if site.mpi == "host" else None),
        *(Bind.parse(text) for text in site.bind),
    )
    gpus = plan.site.node.gpus > 0 and (bool(plan.run.command) or plan.run.train.device != "cpu")
    return Container(found, image.path, binds, gpus, str(plan.folder), plan.site.container.args)


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
    where = Container(found, image.path, mounts.needed(image.bound_training)) if found else None
    host = facts.host(found, plan.site.launcher, binds)
    return check.check(wanted, host, facts.image(Path(image.path), where), _recipe(plan))


def unbuilt(plan: Plan) -> list[Finding] | None:
    """What is known of a plan's image before it is built; None when it is built, or no recipe."""
    own = _recipe(plan)
    if own is None or newest(str(plan.run.image), plan.site):
        return None
    site = plan.site.container
    wanted = check.Wanted(builds=site.build_on == "login", fakeroot=site.build == "fakeroot")
    return check.check(wanted, facts.host(runtime.find(site.runtime), plan.site.launcher), None, own)


def _recipe(plan: Plan) -> recipe.Recipe | None:
    """The recipe that a plan's image is built of; None for a SIF, or no image."""
    source = plan.run.image
    return None if source is None or source.endswith(".sif") else recipe.load(recipe.find(source))


def keep(run: RunFolder, image: Image) -> None:
    """Write the image's facts and definition into the run folder."""
    write_json(run.image, asdict(image))
    if image.definition:
        write_text(run.definition, image.definition)


def kept(run: RunFolder) -> Image | None:
    """The image that a run was submitted with; None for a run without one. Raises SiteError when that is damaged."""
    value = read_object(run.image)
    if value is None:
        return None
    words = {name: required(run.image, value, name, str) for name in ("path", "sha256", "name", "key", "definition")}
    told = {name: required(run.image, value, name, dict) for name in ("labels", "versions")}
    if not re.fullmatch("[0-9a-f]{64}", words["sha256"]):
        raise damaged(run.image, "'sha256' is no SHA-256")
    return Image(**words, **told, bound_training=required(run.image, value, "bound_training", bool))


def changed(image: Image) -> str | None:
    """How the file of an image differs from what it was, in words; None when it is the same."""
    try:
        found = file_sum(Path(image.path))
    except OSError as error:
        raise SiteError(f"{image.path}: the image of this run cannot be read: {error.strerror}") from None
    return None if found == image.sha256 else f"its sum is {found[:12]}, and was {image.sha256[:12]}"


def verify(image: Image) -> None:
    """Read the file of a run's image to its end. Raises SiteError where it is not the one that was submitted."""
    if how := changed(image):
        raise SiteError(
            f"{image.path}: this is not the image that the run was submitted with: {how}; put the old one back, or "
            f"`torusrun resume RUN --new-image`"
        )
