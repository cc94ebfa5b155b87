"""Builds images into the site's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache as cache_of_calls
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.images import pyxis, runtime
from torusrun.orchestrator.images import source as sources
from torusrun.orchestrator.images.builds import build as builds
from torusrun.orchestrator.images.builds import contents, convert, registry
from torusrun.orchestrator.images.builds.cache import SIF, SQUASHFS, Cache, CachedImage
from torusrun.orchestrator.images.builds.caches import Caches, users
from torusrun.orchestrator.images.checks import image_facts
from torusrun.orchestrator.images.command import ContainerExec
from torusrun.orchestrator.images.definitions import image_file
from torusrun.orchestrator.images.definitions import prepare as preparing
from torusrun.orchestrator.images.definitions.definition import Variant
from torusrun.orchestrator.images.definitions.inputs import Inputs
from torusrun.orchestrator.images.definitions.package_lock import PackageLock
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import login


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
        converted, advice = _conversion(named, options.compression, caches(site))
        return Prepared(convert.name(named), converted, replace(options, mode="plain", wheelhouse=None), advice)
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
    """(the definition of a Dockerfile, in a new folder with all files that it copies; notes for the user).

    Raises UserError if `source` is not a Dockerfile, or if the folder exists.
    """
    path = image_file.find(source)
    if not image_file.load(path).dockerfile:
        raise UserError(f"{source}: only a Dockerfile is converted; `torusrun image render` prints other definitions")
    if folder.exists():
        raise UserError(f"{folder}: it exists already; name a new folder")
    inputs = preparing.prepare(path, Variant(host_mpi=site.container.mpi == "host"), context=context).inputs
    inputs.check()
    with explained(f"{folder}: cannot be written"):
        return Path(inputs.lay_out(folder)), inputs.notes


def lock_of(source: str, named: str) -> Path:
    """The lock for a build of the image file at `source`: the named one, else the one beside the image file."""
    return absolute(named) if named else image_file.find(source).with_suffix(".lock")


def _conversion(
    named: sources.NamedImage, compression: str, into: Caches
) -> tuple[convert.Conversion, tuple[str, ...]]:
    """(the conversion of an image, advice: the digest that a tag names now, since it can change)."""
    found = convert.conversion(named, compression)
    if named.transport != "docker" or "@" in named.place:
        return found, ()
    if into.get(found.key):
        again = f"`torusrun image rm {found.key[:12]}` and build again for what it names now"
        return found, (f"{named.text} was converted before: {again}",)
    try:
        pinned = registry.pinned(named.place)
    except SiteError as error:
        return found, (f"{error}; the image that the tag names now is used",)
    pin = f"{named.text} is docker://{pinned} now; write that as 'image' to keep this version"
    return convert.at(found, pinned), (pin,)


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
        return image_facts.image(path, asks).versions, contents.packages(prepared.name, container)

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
