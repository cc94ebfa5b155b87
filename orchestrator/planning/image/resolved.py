"""What of an image is known before it is built, and what only a build, a registry or a machine with GPUs shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images import source as sources
from torusrun.orchestrator.images.builds.cache import CachedImage
from torusrun.orchestrator.images.definitions import build_secrets, image_file
from torusrun.orchestrator.images.definitions.definition import Variant
from torusrun.orchestrator.images.definitions.image_keys import ImageFile
from torusrun.orchestrator.images.definitions.mirror import completed
from torusrun.orchestrator.images.definitions.requirements import brought
from torusrun.orchestrator.images.lookups.parts import BUILD_ONLY, SOURCE, ImagePart, Lookup
from torusrun.orchestrator.images.lookups.web import Web
from torusrun.orchestrator.planning.image import run_image
from torusrun.orchestrator.spec.site import Site

INDEX = "https://pypi.org/simple"  # pip's own
INDEX_SECRETS = ("PIP_INDEX_URL", "PIP_PYPI_URL")  # pip's two names for its index
FURTHER_SECRETS = ("PIP_EXTRA_INDEX_URL",)
HIDING_SECRETS = ("PIP_CONFIG_FILE", "PIP_NO_INDEX")  # pip may use other indexes, or none


@dataclass(frozen=True)
class Resolved:
    """The parts of an image file's image, and all that is open."""

    name: str
    parts: tuple[ImagePart, ...]
    later: tuple[str, ...]  # what only a build or a machine with GPUs shows
    built: CachedImage | None = None  # the newest image of it in the site's caches

    @property
    def estimated_bytes(self) -> int:
        """The size of the image: its base, packages and wheels as they are downloaded."""
        return sum(part.size_bytes or 0 for part in self.parts if part.kind not in (SOURCE, BUILD_ONLY))

    @property
    def unknown(self) -> list[str]:
        """The parts whose sizes are not in the estimate."""
        return [part.name for part in self.parts if part.size_bytes is None and part.kind not in (SOURCE, BUILD_ONLY)]

    def as_json(self) -> dict[str, Any]:
        built = self.built and {"key": self.built.key, "size_bytes": self.built.size_bytes}
        return {
            "schema": 1, "image": self.name, "parts": [vars(part) for part in self.parts],
            "estimated_bytes": self.estimated_bytes, "not_in_the_estimate": self.unknown, "built": built,
            "later": list(self.later),
        }  # fmt: skip


def resolve(source: str, site: Site, web: Web | None = None) -> Resolved:
    """Look up the parts of the image file at `source`. It downloads indexes, and neither packages nor layers.

    Raises UserError if it is no image file with parts of its own.
    """
    path = image_file.find(source)
    own = image_file.load(path)
    if own.definition or own.dockerfile:
        raise UserError(f"{source}: a definition or Dockerfile names its packages in shell commands, which only run")
    try:
        own = completed(own)
    except UserError:  # this machine is no Debian
        own = replace(own, base=replace(own.base, mirror=None))
    indexes, no_index = _indexes(own, path.parent)
    variant = Variant(host_mpi=site.container.mpi == "host")
    packages = brought(own.python, path.parent)
    lookup = Lookup(own, path.parent, variant, packages, os.uname().machine, web or Web(), indexes, no_index)
    private = " ".join(url for url in indexes if url not in own.python.indexes)
    hide = build_secrets.hiding(build_secrets.of_urls(private))
    parts = (replace(part, name=hide(part.name), open=hide(part.open)) for part in lookup.parts())
    return Resolved(own.name, tuple(parts), tuple(_later(own)), _built(source, site))


def _indexes(own: ImageFile, beside: Path) -> tuple[list[str], str]:
    """(the indexes that pip will query; why they are not known, or '').

    Those in the image file's secrets count before that of this shell: names of private packages reach no other index.
    """
    if hiding := next((name for name in HIDING_SECRETS if name in own.secrets), None):
        return [], f"only the build knows the indexes of pip: 'secrets.{hiding}'"
    named = {name: own.secrets[name] for name in (*INDEX_SECRETS, *FURTHER_SECRETS) if name in own.secrets}
    try:
        values = build_secrets.read(named, beside).values
    except UserError as error:
        return [], str(error)
    first = [url for name in INDEX_SECRETS for url in values.get(name, "").split()]
    further = [url for name in FURTHER_SECRETS for url in values.get(name, "").split()]
    return [*(first or [os.environ.get("PIP_INDEX_URL") or INDEX]), *further, *own.python.indexes], ""


def _later(own: ImageFile) -> Iterator[str]:
    if own.post:
        yield "what 'post' adds or removes: the build"
    if own.mpi.source == "built":
        yield "whether the MPI compiles, and its size: the build"
    if own.cuda:
        if own.cuda.architectures:
            yield f"whether torch has kernels for {', '.join(own.cuda.architectures)}: the build, in %test"
        if own.cuda.driver:
            yield f"whether the driver is {own.cuda.driver} or newer: `torusrun check`, on a node with GPUs"
        yield "whether it trains on GPUs, and NCCL over InfiniBand: a run"


def _built(source: str, site: Site) -> CachedImage | None:
    try:
        return run_image.newest(sources.parse(sources.beside(source, Path())), site)
    except (UserError, SiteError):
        return None
