"""Builds images into the site's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache as cache_of_calls
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError, explained
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.images import pyxis, runtime
from torusrun.orchestrator.images import source as sources
from torusrun.orchestrator.images.builds import build as builds
from torusrun.orchestrator.images.builds import convert
from torusrun.orchestrator.images.builds.cache import SIF, SQUASHFS, Cache, CachedImage
from torusrun.orchestrator.images.builds.caches import Caches, users
from torusrun.orchestrator.images.checks import image_facts
from torusrun.orchestrator.images.command import ContainerExec
from torusrun.orchestrator.images.definitions import definition_file, image_file, package_lock
from torusrun.orchestrator.images.definitions import prepare as preparing
from torusrun.orchestrator.images.definitions.definition import Variant
from torusrun.orchestrator.images.definitions.inputs import Inputs
from torusrun.orchestrator.images.definitions.package_lock import PackageLock
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import login

_TAG = (
    "{}: a tag can name another image later, and the cache keeps the one that it names now; "
    "name its digest, which `skopeo inspect` shows"
)


def cache(site: Site) -> Cache:
    """The site's folder of built images."""
    return Cache(expanded(site.container.cache))


def caches(site: Site) -> Caches:
    """The site's folders of images, in the order in which they are searched. Raises UserError for an unknown owner."""
    owners = users(site.container.owners)
    own = cache(site)
    others = [Cache(expanded(folder), owners) for folder in site.container.caches]
    # The owner of a group's cache may name it in both keys: the images are their own, and not only to be read.
    same = os.path.realpath(own.folder)
    starts = SQUASHFS if pyxis.used(site.container.runtime) else SIF
    return Caches(tuple(other for other in others if os.path.realpath(other.folder) != same), own, starts)


def prepare(
    source: str,
    site: Site,
    *,
    offline: bool = False,
    wheelhouse: Path | None = None,
    lock: Path | None = None,
    context: Path | None = None,
) -> Prepared:
    """The inputs and options of a build for a site: of an image file, or of an image to convert to a SIF.

    `context` is the folder from which a Dockerfile copies, in place of its own. Raises UserError if it cannot be built.
    """
    container = site.container
    options = builds.Options(
        mode=container.build,
        compression=container.compression or "",
        wheelhouse=wheelhouse,
        temporary=Path(container.temporary) if container.temporary else None,
    )
    named = sources.parse(sources.beside(source, Path()))
    if named.kind in ("SIF", "squashfs"):
        raise UserError(
            f"{source}: this is a {named.kind}, so there is nothing to build; a run names it as its 'image'"
        )
    if named.converted and context:
        raise UserError(f"--context: {source} is not a Dockerfile; leave it out")
    if named.converted:
        if lock is not None:
            raise UserError(f"{source}: only an image file can be built from a lock")
        if offline and named.kind == "registry":
            raise UserError(f"{source}: this is in a registry, but --offline uses no network")
        made, options = convert.conversion(named, options.compression), replace(options, mode="plain", wheelhouse=None)
        advice = (_TAG.format(named.text),) if named.transport == "docker" and "@" not in named.place else ()
        return Prepared(convert.name(named), made, options, advice)
    path = image_file.find(source)
    variant = Variant(host_mpi=container.mpi == "host", offline=offline)
    found = preparing.prepare(path, variant, options.compression, wheelhouse, lock, context=context)
    options = replace(options, secrets=found.image_file.secrets, secrets_beside=path.parent.absolute())
    return Prepared(found.image_file.name, found.inputs, options, found.advice)


def definition(source: str, site: Site, context: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """(the definition of the image file at `source`, for a site; notes for the user).

    Raises UserError if the image file is invalid.
    """
    return preparing.rendered(image_file.find(source), Variant(host_mpi=site.container.mpi == "host"), context)


def converted(source: str, site: Site, folder: Path, context: Path | None = None) -> tuple[Path, tuple[str, ...]]:
    """(what is written to the new path `folder`, notes for the user).

    Of a Dockerfile it is a folder with its definition and the files it copies, of a user's definition a Dockerfile.
    Raises UserError for another `source`, or if the path exists.
    """
    path = image_file.find(source)
    loaded = image_file.load(path)
    if not loaded.dockerfile and not loaded.definition:
        raise UserError(
            f"{source}: only a Dockerfile or a definition is converted; `torusrun image render` prints others"
        )
    if os.path.lexists(folder):
        raise UserError(f"{folder}: it exists already; name a new one")
    if loaded.definition:
        place = path.parent / expanded(loaded.definition)
        text, notes = definition_file.dockerfile(read_text(place, "definition"), str(place))
        write_text(folder, text)
        return folder, notes
    inputs = preparing.prepare(path, Variant(host_mpi=site.container.mpi == "host"), context=context).inputs
    inputs.check()
    with explained(f"{folder}: cannot be written"):
        return Path(inputs.lay_out(folder)), inputs.notes


def lock_of(source: str, named: str) -> Path:
    """The lock for a build of the image file at `source`: the named one, else the one beside the image file."""
    return absolute(named) if named else image_file.find(source).with_suffix(".lock")


@dataclass(frozen=True)
class Prepared:
    """The inputs and options of a build, whose key finds its image in the cache."""

    name: str
    inputs: Inputs
    options: builds.Options
    advice: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.inputs.key


def build(
    prepared: Prepared, site: Site, progress: Callable[[str], None], draw: Callable[[str], None] | None = None
) -> CachedImage:
    """The image, from the cache or built on this machine. `draw` redraws a line.

    Raises BuildFailed with the log's path.
    """

    if entry := caches(site).sound(prepared.key, progress):
        return entry

    @cache_of_calls
    def required() -> runtime.Runtime:
        named = site.container.runtime
        return login(site).runtime or runtime.required(None if pyxis.used(named) else named)

    def examine(path: Path) -> tuple[dict[str, str], PackageLock | None]:
        container = ContainerExec(required(), str(path))
        asks = image_facts.Inside(container)
        return image_facts.image(path, asks).versions, package_lock.packages(prepared.name, container)

    options = replace(prepared.options, temporary=_here(prepared.options.temporary))
    return builds.build(prepared.name, prepared.inputs, cache(site), required, options, progress, examine, draw)


def _here(folder: Path | None) -> Path | None:
    """A folder with its variables expanded on the machine of the build, which may be in a job."""
    if folder is None:
        return None
    place = os.path.expandvars(expanded(folder))
    if "$" in place:
        raise UserError(f"'container.temporary' {str(folder)!r} names a variable that is not set here: build in a job")
    return Path(place)
