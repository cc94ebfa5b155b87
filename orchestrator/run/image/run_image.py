"""The image of a plan: whether it is built, whether the runtime can start it, and how the ranks run in it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import UserError, explained
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.images import command, pyxis, runtime, source
from torusrun.orchestrator.images.builds import convert
from torusrun.orchestrator.images.builds.cache import SQUASHFS, CachedImage, changed, sum_beside
from torusrun.orchestrator.images.builds.convert import Progress
from torusrun.orchestrator.images.checks.findings import Finding
from torusrun.orchestrator.images.command import Bind, ContainerExec, words_needed
from torusrun.orchestrator.images.definitions import image_file, prepare
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.images.source import NamedImage
from torusrun.orchestrator.keys.as_asked import uses_gpus
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.building import cache
from torusrun.orchestrator.run.image.login import login
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.data.named import packed_path


class Unusable(UserError):
    """The file of a plan's image cannot be used; `finding` is the result of its check."""

    def __init__(self, image: str, kind: str, what: str, mend: str = "") -> None:
        super().__init__(what + mend)
        self.image = image
        self.finding = Finding(kind, what, evidence=f"the whole of {image} was read")


def of_plan(plan: Plan) -> Image | None:
    """The image of a plan; None for a run without an image.

    Raises Unusable if it cannot be read or has changed since it was built, UserError if it is not built.
    """
    if (text := plan.run.image) is None:
        return None
    named = source.parse(text)
    by_pyxis = pyxis.used(plan.site.container.runtime)
    if named.kind == "squashfs" and not by_pyxis:
        raise UserError(f"the image {text!r} is for Pyxis; this site has none ('container.runtime: pyxis')")
    if named.kind == "squashfs" or (named.kind == "SIF" and not by_pyxis):
        return _own(named.place)
    entry = _whole(plan, named)
    if entry is None:
        form = "a squashfs, which Pyxis starts," if by_pyxis else "a SIF"
        done = f"converted to {form}" if named.converted or named.kind == "SIF" else "built"
        raise UserError(f"the image {text!r} is not {done} for this site yet: `{build_command(plan)}`")
    bound = entry.labels.get("torusrun.training", "bound") == "bound"
    return Image(
        path=str(entry.path),
        sha256=entry.sha256,
        name=entry.name,
        key=entry.key,
        bound_training=bound,
        labels=entry.labels,
        versions=entry.versions,
        definition=entry.definition,
    )


def _whole(plan: Plan, named: source.NamedImage) -> CachedImage | None:
    """The image of the cache; None if it is not built. Raises Unusable if its content has changed."""
    entry = newest(named, plan.site)
    if entry and (wrong := cache(plan.site).verify(entry)):
        raise Unusable(str(entry.path), "image-broken", wrong, f"; `{build_command(plan)}` makes it again")
    return entry


def _own(place: str) -> Image:
    """The image in a SIF that the run names by its path."""
    try:
        with busy(f"reading {place} for its checksum"):
            checksum = file_checksum(Path(place))
    except OSError as error:
        raise Unusable(place, "image-unreadable", f"{place}: the image cannot be read: {error.strerror}") from None
    built = sum_beside(Path(os.path.realpath(place)))
    if built and (wrong := changed(Path(place), checksum, built)):
        raise Unusable(place, "image-broken", wrong, "; build it again, or copy it again from where it came")
    return Image(place, checksum, Path(place).stem)


def build_command(plan: Plan) -> str:
    """The command by which a user makes the image of a plan."""
    return shlex.join(["torusrun", "image", "build", str(plan.run.image), "--site", plan.run.site])


def newest(named: source.NamedImage, site: Site) -> CachedImage | None:
    """The newest image of a source in its present state; for an image file, with any versions of its packages."""
    if pyxis.used(site.container.runtime):
        return squashed(named, site)
    if named.converted:
        return cache(site).get(convert.conversion(named).key)
    return cache(site).newest_of(prepare.sources(image_file.find(named.text), bool(site.container.host_mpi)))


def container(plan: Plan, image: Image, starts: runtime.Runtime) -> ContainerExec:
    """How this plan's ranks run in its image. They see the run folder, the training, its data, and the site's binds."""
    site = plan.site.container
    return ContainerExec(
        starts,
        image.path,
        binds(plan, image),
        gpu=gpu(plan),
        writable=site.writable is not None,
        directory=str(plan.folder),
        extra=() if pyxis.used(site.runtime) else site.args,
        environment=command.variables(image.bound_training),
    )


def binds(plan: Plan, image: Image) -> tuple[Bind, ...]:
    """What the ranks see of the host: the run folder, the training, its data, and the site's binds."""
    site = plan.site.container
    packed = None if plan.run.command else packed_path(plan.run.train.data)
    return (
        Bind(str(plan.folder)),
        *((Bind(folder),) if (folder := plan.run.checkpoints.folder) and os.path.isabs(folder) else ()),
        *((Bind(run, read_only=True),) if (run := plan.run.judged) else ()),
        *((Bind(str(packed.parent), read_only=True),) if packed and packed.exists() else ()),
        *command.needed(image.bound_training, site.host_mpi),
        *(Bind.parse(text) for text in site.bind),
    )


def pyxis_options(plan: Plan, image: Image, directory: str) -> list[str]:
    """The options of srun that start this plan's ranks in its image. Raises UserError for a path that cannot be bound.

    `directory` is the ranks' working directory.
    """
    site = plan.site.container
    try:
        return pyxis.options(image.path, binds(plan, image), directory, writable=bool(site.writable), extra=site.args)
    except ValueError as error:
        raise UserError(f"{image.path}: cannot be started: {error}; choose another folder") from None


def check_startable(plan: Plan, image: Image, here: runtime.Runtime) -> None:
    """Raise UserError if this runtime lacks an option that the site needs."""
    if pyxis.used(plan.site.container.runtime):
        return  # the runtime is only asked what is in the image, and Pyxis starts it
    for word in words_needed(container(plan, image, here)):
        if lacking := here.lacks(word):
            raise UserError(f"{lacking}; load a newer module of it, or change 'container' of the site")


def gpu(plan: Plan) -> str:
    """The runtime's option for the host's GPUs ('nv' or 'rocm'); '' for ranks that use none."""
    node, asked = plan.site.node, plan.site.container.gpu
    if asked == "none" or not uses_gpus(plan.run, plan.site):
        return ""
    return asked or ("rocm" if (node.architecture or "").startswith("gfx") else "nv")


def squashed(named: NamedImage, site: Site) -> CachedImage | None:
    """The squashfs of an image that must be converted or built. Raises UserError if the image's file cannot be read."""
    own = cache(site)
    if named.kind == "SIF":
        return own.get(convert.key_of_sif(_checksum(named)))
    if named.transport == "docker" and (entry := own.get(convert.key_of_import(convert.reference(named.place)))):
        return entry
    if named.converted:
        keys = [convert.conversion(named).source]
    else:
        keys = prepare.sources(image_file.find(named.text), bool(site.container.host_mpi))
    return own.newest_of(keys, SQUASHFS)


def squashed_directly(
    text: str, site: Site, progress: Progress, *, offline: bool = False, refused: str = ""
) -> CachedImage | None:
    """The squashfs of a SIF, or of what enroot imports; None for an image that is first made as a SIF.

    `refused` is an option that only such a build has. Raises UserError, SiteError if that fails.
    """
    named = source.parse(source.beside(text, Path()))
    if named.kind == "squashfs":
        raise UserError(f"{text}: Pyxis starts this file unchanged; a run names it as its 'image'")
    if named.kind == "SIF":
        _refuse(refused, text)
        path = Path(named.place)
        own = CachedImage(
            key="", path=path, name=path.stem, definition="", sha256=_checksum(named), size_bytes=0, built_s=0.0,
            build_time_s=0.0, built_by=f"others ({path})", labels=convert.BOUND,
        )  # fmt: skip
        return convert.of_sif(own, cache(site), progress)
    here = login(site)
    enroot = which("enroot", environment=here.environment) if named.transport == "docker" else None
    if enroot is None:
        return None
    _refuse(refused, text)
    if offline:
        raise UserError(f"{text}: this is in a registry, but --offline uses no network")
    reference = convert.reference(named.place)
    return convert.imported(reference, convert.name(named), cache(site), enroot, here.environment, progress)


def _refuse(option: str, text: str) -> None:
    if option:
        raise UserError(f"{option}: {text} is not built, but copied or imported on this machine")


def _checksum(named: NamedImage) -> str:
    reading = f"reading {named.place} for its checksum"
    with explained(f"{named.place}: the image cannot be read", UserError), busy(reading):
        return file_checksum(Path(named.place))
