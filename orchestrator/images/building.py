"""From an image file to a built image in the site's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.containers import build as builds
from orchestrator.containers import contents, facts, image_file, runtime
from orchestrator.containers import prepare as preparing
from orchestrator.containers.cache import Cache, CachedImage
from orchestrator.containers.command import ContainerExec
from orchestrator.containers.definition import Variant
from orchestrator.containers.inputs import Inputs
from orchestrator.errors import UserError
from orchestrator.spec.paths import absolute, expanded
from orchestrator.spec.site import Site


def cache(site: Site) -> Cache:
    """The site's folder of built images."""
    return Cache(expanded(site.container.cache))


def prepare(
    source: str, site: Site, *, offline: bool = False, wheelhouse: Path | None = None, lock: Path | None = None
) -> Prepared:
    """What a build of the image file at `source` needs for a site. Raises UserError where that cannot be done."""
    container = site.container
    path = image_file.find(source)
    variant = Variant(host_mpi=container.mpi == "host", offline=offline)
    found = preparing.prepare(path, variant, container.compression or "", wheelhouse, lock)
    options = builds.Options(
        mode=container.build,
        compression=container.compression or "",
        wheelhouse=wheelhouse,
        temporary=Path(container.temporary) if container.temporary else None,
        secrets=found.image_file.secrets,
        secrets_beside=path.parent.absolute(),
    )
    return Prepared(path, found.image_file.name, found.inputs, options, found.advice)


def definition(source: str, site: Site) -> str:
    """The definition of the image file at `source`, as a site has it built. Raises UserError for a broken one."""
    return preparing.text(image_file.find(source), Variant(host_mpi=site.container.mpi == "host"))


def lock_of(source: str, named: str) -> Path:
    """The lock to build the image file at `source` from: the one that is named, else the one beside the image file."""
    return absolute(named) if named else image_file.find(source).with_suffix(".lock")


@dataclass(frozen=True)
class Prepared:
    """An image file, ready to be built or to be looked up in the cache."""

    path: Path
    name: str
    inputs: Inputs
    options: builds.Options
    advice: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.inputs.key


def build(prepared: Prepared, site: Site, progress: Callable[[str], None]) -> CachedImage:
    """The image, from the cache or built here and now. Raises BuildFailed with the log's place."""

    def required() -> runtime.Runtime:
        return runtime.required(site.container.runtime)

    def examine(path: Path) -> builds.Examined:
        container = ContainerExec(required(), str(path))
        return builds.Examined(facts.image(path, container).versions, contents.packages(prepared.name, container))

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
