"""A recipe into the definition file that singularity and apptainer build from.

The text names no path of this machine: what it copies in lies beside it under fixed names (`files/0`, `base`), so the
same recipe gives the same text, and the same image in the cache, wherever it is built.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator import process
from orchestrator.containers.quoting import export, line, shell
from orchestrator.containers.recipe import MPI_SUM_MISSING, Recipe
from orchestrator.errors import UserError
from orchestrator.render.environment import Text

PYTHON = "/opt/python"
TRAINING = "/opt/torusrun"  # the folder that holds the package `training`
OPENMPI = "/opt/openmpi"
HOST_MPI = "/opt/host-mpi"  # where a site's own MPI is bound
WHEELHOUSE = "/mnt"  # in every base, so that binding a folder there needs no mount point


@dataclass(frozen=True)
class Variant:
    """What a site decides about an image: whose MPI it uses, and what can be reached while it is built."""

    host_mpi: bool = False
    wheelhouse: bool = False
    offline: bool = False

    @property
    def name(self) -> str:
        """The variant in a word, as in golden files and messages."""
        network = "offline" if self.offline else "wheelhouse" if self.wheelhouse else "online"
        return f"{'host' if self.host_mpi else 'inside'}-{network}"


def render(recipe: Recipe, variant: Variant | None = None) -> str:
    """The definition. Raises UserError where a value cannot stand in one."""
    from orchestrator.render import environment

    variant = variant or Variant()
    if recipe.mpi.source == "built" and not recipe.mpi.sha256:
        raise UserError(f"the recipe {recipe.name!r} builds an MPI; {MPI_SUM_MISSING}")
    return environment.render(
        "container/image.def.j2",
        header=header(recipe),
        variant=variant,
        builds_mpi=recipe.mpi.source == "built" and not variant.host_mpi,
        distribution_mpi=recipe.mpi.source == "distribution" and not variant.host_mpi,
        mpi_url=shell(recipe.mpi.url or ""),
        mpi_archive=shell(archive(recipe)),
        mpi_sha256=shell(recipe.mpi.sha256 or ""),
        mpi_options=[shell(option) for option in recipe.mpi.configure],
        copies=[Text(f"{a} {line(b, 'path')}") for a, b in copies(recipe)],
        system=[shell(package) for package in system(recipe, variant)],
        packages=[shell(package) for package in recipe.python.packages],
        indexes=[shell(url) for url in recipe.python.indexes],
        exports=[export(name, value) for name, value in environment_of(recipe, variant)],
        labels=[Text(f"{line(k, 'label')} {line(v, 'label')}") for k, v in labels(recipe, variant).items()],
        architectures=[shell(a) for a in recipe.cuda.architectures] if recipe.cuda else [],
        torch=any(package.startswith("torch==") for package in recipe.python.packages),
        training=recipe.training,
        run_training=Text(shlex.join(process.module(f"{PYTHON}/bin/python", "training"))),
        at=_PLACES,
    )


_PLACES = {"python": PYTHON, "training": TRAINING, "mpi": OPENMPI, "host_mpi": HOST_MPI, "wheelhouse": WHEELHOUSE}


def header(recipe: Recipe) -> list[Text]:
    """The lines that say what a stage starts from."""
    base = recipe.base
    if base.docker:
        reference = base.docker + (f"@{base.digest}" if base.digest else "")
        if "@" in reference:
            # A tag beside a digest is refused by some registry clients; the digest alone says which image it is.
            reference = re.sub(r":[^:/@]+@", "@", reference)
        return [Text("Bootstrap: docker"), Text(f"From: {line(reference, 'image')}")]
    if base.debootstrap:
        suite = [Text("Bootstrap: debootstrap"), Text(f"OSVersion: {line(base.debootstrap, 'suite')}")]
        return [*suite, *([Text(f"MirrorURL: {line(base.mirror, 'mirror')}")] if base.mirror else [])]
    if base.folder or base.sif:
        return [Text("Bootstrap: localimage"), Text("From: base")]
    raise UserError(f"the recipe {recipe.name!r} has no base; give it docker, folder, sif or debootstrap")


def copies(recipe: Recipe) -> list[tuple[str, str]]:
    """(path beside the definition, path in the image) of everything that is copied in."""
    own = [(f"files/{i}", file.to) for i, file in enumerate(recipe.files)]
    return [*own, *([("files/training", f"{TRAINING}/training")] if recipe.training == "inside" else [])]


def system(recipe: Recipe, variant: Variant) -> list[str]:
    """The Debian packages that have to be there: the recipe's, and those that its other parts stand on."""
    needed = list(recipe.system)
    if recipe.python.packages:
        needed += ["ca-certificates", "python3", "python3-venv"]
    if recipe.mpi.source == "distribution" and not variant.host_mpi:
        needed += ["openmpi-bin"]
    return sorted({package.partition("=")[0]: package for package in reversed(needed)}.values())


def archive(recipe: Recipe) -> str:
    """The file name of the MPI's source archive, '' when there is none."""
    return (recipe.mpi.url or "").rpartition("/")[2]


def environment_of(recipe: Recipe, variant: Variant) -> Iterator[tuple[str, str]]:
    """(name, value) of the variables inside that are plain values; paths are extended by the template."""
    if recipe.python.packages:
        yield "PYTHONNOUSERSITE", "1"  # the user's ~/.local is bound in, and must not shadow the image
    if recipe.mpi.source == "built" and not variant.host_mpi:
        yield "OPAL_PREFIX", OPENMPI
    if variant.host_mpi:
        yield "OPAL_PREFIX", HOST_MPI
    yield from recipe.environment.items()


def labels(recipe: Recipe, variant: Variant) -> dict[str, str]:
    """The image's labels: what the checks and the run folder want to know, then the recipe's own."""
    mpi, cuda = recipe.mpi, recipe.cuda
    found: dict[str, str | None] = {
        "torusrun.definition": "1",
        "org.opencontainers.image.title": recipe.name,
        "org.opencontainers.image.description": recipe.summary,
        "torusrun.recipe": recipe.name,
        "torusrun.variant": variant.name,
        "torusrun.base.digest": recipe.base.digest,
        "torusrun.mpi": "host" if variant.host_mpi else mpi.family if mpi.source != "none" else "none",
        "torusrun.mpi.version": None if variant.host_mpi else mpi.version,
        "torusrun.pmix": None if variant.host_mpi or mpi.pmix is None else str(mpi.pmix),
        "torusrun.cuda": cuda.version if cuda else None,
        "torusrun.cudnn": cuda.cudnn if cuda else None,
        "torusrun.nccl": cuda.nccl if cuda else None,
        "torusrun.driver": cuda.driver if cuda else None,
        "torusrun.architectures": ",".join(cuda.architectures) if cuda else None,
        "torusrun.training": recipe.training,
    }
    return {name: value for name, value in [*found.items(), *recipe.labels.items()] if value}
