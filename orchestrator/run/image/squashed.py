"""The images of a site with Pyxis: files of squashfs, found in its caches, or made on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.images import source as sources
from torusrun.orchestrator.images.builds import convert, squash
from torusrun.orchestrator.images.builds.cache import SQUASHFS, CachedImage
from torusrun.orchestrator.images.builds.squash import Progress
from torusrun.orchestrator.images.definitions import image_file, prepare
from torusrun.orchestrator.images.definitions.inputs import file_checksum
from torusrun.orchestrator.images.source import NamedImage
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image import building
from torusrun.orchestrator.run.image.login import login


def found(named: NamedImage, site: Site) -> Iterator[CachedImage]:
    """The squashfs of an image that must be converted or built, from each cache of the site in the order of use.

    Raises UserError if the image's file cannot be read.
    """
    caches = building.caches(site)
    if named.kind == "SIF":
        key = squash.key_of_sif(_checksum(named))
        yield from caches.each(lambda cache: cache.get(key))
        return
    if named.transport == "docker":
        key = squash.key_of_import(squash.reference(named.place))
        yield from caches.each(lambda cache: cache.get(key))
    compression = site.container.compression or ""
    if named.converted:
        made_of = [convert.conversion(named, compression).source]
    else:
        path = image_file.find(named.text)
        made_of = prepare.sources(path, site.container.mpi == "host", compression)
    yield from caches.built_from(made_of, SQUASHFS)


def directly(
    source: str, site: Site, progress: Progress, *, offline: bool = False, refused: str = ""
) -> CachedImage | None:
    """The squashfs of a SIF, or of what enroot imports; None for an image that is first made as a SIF.

    `refused` is an option that only such a build has. Raises UserError, SiteError if that fails.
    """
    named = sources.parse(sources.beside(source, Path()))
    cache = building.cache(site)
    if named.kind == "squashfs":
        raise UserError(f"{source}: Pyxis starts this file unchanged; a run names it as its 'image'")
    if named.kind == "SIF":
        _refuse(refused, source)
        path = Path(named.place)
        own = CachedImage(
            key="", path=path, name=path.stem, definition="", sha256=_checksum(named), size_bytes=0, built_s=0.0,
            build_time_s=0.0, built_by=f"others ({path})", labels=squash.BOUND,
        )  # fmt: skip
        return squash.of_sif(own, cache, progress)
    here = login(site)
    enroot = which("enroot", environment=here.environment) if named.transport == "docker" else None
    if enroot is None:
        return None
    _refuse(refused, source)
    if offline:
        raise UserError(f"{source}: this is in a registry, but --offline uses no network")
    reference = squash.reference(named.place)
    return squash.imported(reference, convert.name(named), cache, enroot, here.environment, progress)


def _refuse(option: str, source: str) -> None:
    if option:
        raise UserError(f"{option}: {source} is not built, but copied or imported on this machine")


def of(entry: CachedImage, site: Site, progress: Progress) -> CachedImage:
    """The squashfs of a SIF of the cache."""
    return squash.of_sif(entry, building.cache(site), progress)


def _checksum(named: NamedImage) -> str:
    try:
        with busy(f"reading {named.place} for its checksum"):
            return file_checksum(Path(named.place))
    except OSError as error:
        raise UserError(f"{named.place}: the image cannot be read: {error.strerror}") from None
