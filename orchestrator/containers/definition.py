"""An image file into the definition file that singularity and apptainer build from.

The text names no path of this machine: what it copies in lies beside it under fixed names (`files/0`, `base`), so the
same image file gives the same text, and the same image in the cache, wherever it is built.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator import process
from orchestrator.containers.image_file import MPI_CHECKSUM_MISSING, ImageFile
from orchestrator.containers.quoting import export, line, shell
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


def render(image_file: ImageFile, variant: Variant | None = None) -> str:
    """The definition. Raises UserError where a value cannot stand in one."""
    from orchestrator.render import environment

    variant = variant or Variant()
    if image_file.mpi.source == "built" and not image_file.mpi.sha256:
        raise UserError(f"the image file {image_file.name!r} builds an MPI; {MPI_CHECKSUM_MISSING}")
    return environment.render(
        "container/image.def.j2",
        header=header(image_file),
        variant=variant,
        builds_mpi=image_file.mpi.source == "built" and not variant.host_mpi,
        distribution_mpi=image_file.mpi.source == "distribution" and not variant.host_mpi,
        mpi_url=shell(image_file.mpi.url or ""),
        mpi_archive=shell(archive(image_file)),
        mpi_sha256=shell(image_file.mpi.sha256 or ""),
        mpi_options=[shell(option) for option in image_file.mpi.configure],
        copies=[Text(f"{a} {line(b, 'path')}") for a, b in copies(image_file)],
        system=[shell(package) for package in system(image_file, variant)],
        packages=[shell(package) for package in image_file.python.packages],
        indexes=[shell(url) for url in image_file.python.indexes],
        exports=[export(name, value) for name, value in environment_of(image_file, variant)],
        labels=[Text(f"{line(k, 'label')} {line(v, 'label')}") for k, v in labels(image_file, variant).items()],
        architectures=[shell(a) for a in image_file.cuda.architectures] if image_file.cuda else [],
        torch=any(package.startswith("torch==") for package in image_file.python.packages),
        training=image_file.training,
        run_training=Text(shlex.join(process.module(f"{PYTHON}/bin/python", "training"))),
        at=_PLACES,
    )


_PLACES = {"python": PYTHON, "training": TRAINING, "mpi": OPENMPI, "host_mpi": HOST_MPI, "wheelhouse": WHEELHOUSE}


def header(image_file: ImageFile) -> list[Text]:
    """The lines that say what a stage starts from."""
    base = image_file.base
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
    raise UserError(f"the image file {image_file.name!r} has no base; give it docker, folder, sif or debootstrap")


def copies(image_file: ImageFile) -> list[tuple[str, str]]:
    """(path beside the definition, path in the image) of everything that is copied in."""
    own = [(f"files/{i}", file.to) for i, file in enumerate(image_file.files)]
    return [*own, *([("files/training", f"{TRAINING}/training")] if image_file.training == "inside" else [])]


def system(image_file: ImageFile, variant: Variant) -> list[str]:
    """The Debian packages that have to be there: the image file's, and those that its other parts stand on."""
    needed = list(image_file.system)
    if image_file.python.packages:
        needed += ["ca-certificates", "python3", "python3-venv"]
    if image_file.mpi.source == "distribution" and not variant.host_mpi:
        needed += ["openmpi-bin"]
    return sorted({package.partition("=")[0]: package for package in reversed(needed)}.values())


def archive(image_file: ImageFile) -> str:
    """The file name of the MPI's source archive, '' when there is none."""
    return (image_file.mpi.url or "").rpartition("/")[2]


def environment_of(image_file: ImageFile, variant: Variant) -> Iterator[tuple[str, str]]:
    """(name, value) of the variables inside that are plain values; paths are extended by the template."""
    if image_file.python.packages:
        yield "PYTHONNOUSERSITE", "1"  # the user's ~/.local is bound in, and must not shadow the image
    if image_file.mpi.source == "built" and not variant.host_mpi:
        yield "OPAL_PREFIX", OPENMPI
    if variant.host_mpi:
        yield "OPAL_PREFIX", HOST_MPI
    yield from image_file.environment.items()


def labels(image_file: ImageFile, variant: Variant) -> dict[str, str]:
    """The image's labels: what the checks and the run folder want to know, then the image file's own."""
    mpi, cuda = image_file.mpi, image_file.cuda
    found: dict[str, str | None] = {
        "torusrun.definition": "1",
        "org.opencontainers.image.title": image_file.name,
        "org.opencontainers.image.description": image_file.summary,
        "torusrun.image": image_file.name,
        "torusrun.variant": variant.name,
        "torusrun.base.digest": image_file.base.digest,
        "torusrun.mpi": "host" if variant.host_mpi else mpi.family if mpi.source != "none" else "none",
        "torusrun.mpi.version": None if variant.host_mpi else mpi.version,
        "torusrun.pmix": None if variant.host_mpi or mpi.pmix is None else str(mpi.pmix),
        "torusrun.cuda": cuda.version if cuda else None,
        "torusrun.cudnn": cuda.cudnn if cuda else None,
        "torusrun.nccl": cuda.nccl if cuda else None,
        "torusrun.driver": cuda.driver if cuda else None,
        "torusrun.architectures": ",".join(cuda.architectures) if cuda else None,
        "torusrun.training": image_file.training,
    }
    return {name: value for name, value in [*found.items(), *image_file.labels.items()] if value}
