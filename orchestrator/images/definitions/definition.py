"""Turns an image file into the definition file from which singularity and apptainer build.

The text names no path of this machine. The files that it copies lie beside it under fixed names (`files/0`, `base`). So
an image file gives the same text, and the same image in the cache, on every machine.
"""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass

from torusrun.orchestrator.base import process, templates
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.templates import Text
from torusrun.orchestrator.images.command import HOST_MPI, ON_PATH, TRAINING
from torusrun.orchestrator.images.definitions import build_secrets
from torusrun.orchestrator.images.definitions.image_file import MPI_CHECKSUM_MISSING
from torusrun.orchestrator.images.definitions.image_keys import ImageFile
from torusrun.orchestrator.images.definitions.package_lock import INSTALLED, PackageLock
from torusrun.orchestrator.images.definitions.quoting import export, line, shell
from torusrun.orchestrator.images.definitions.requirements import BUILD_ONLY, Brought

PYTHON = "/opt/python"
OPENMPI = "/opt/openmpi"
WHEELHOUSE = f"{BUILD_ONLY}/wheels"


@dataclass(frozen=True)
class Variant:
    """A site's choices for an image: whose MPI it uses, and which sources of packages its build can reach."""

    host_mpi: bool = False
    wheelhouse: bool = False
    offline: bool = False

    @property
    def name(self) -> str:
        """The name of the variant, as in golden files and messages."""
        network = "offline" if self.offline else "wheelhouse" if self.wheelhouse else "online"
        return f"{'host' if self.host_mpi else 'inside'}-{network}"


def render(
    image_file: ImageFile,
    variant: Variant | None = None,
    brought: Brought | None = None,
    locked: PackageLock | None = None,
) -> str:
    """The definition. Raises UserError if a value cannot be written into one.

    `brought` are the Python packages that the user brings (of `requirements.brought`). With `locked`, exactly the
    packages of that lock are installed.
    """
    variant, brought = variant or Variant(), brought or Brought()
    if image_file.mpi.source == "built" and not image_file.mpi.sha256:
        raise UserError(f"the image file {image_file.name!r} builds an MPI; {MPI_CHECKSUM_MISSING}")
    from_base = image_file.python.source == "base"
    python = "python3" if from_base else f"{PYTHON}/bin/python"
    packages = system(image_file, variant, brought, locked)
    built_s = locked.built_s if locked else 0
    return templates.render(
        "container/image.def.j2",
        image=image_file,
        header=header(image_file),
        variant=variant,
        export=export,
        line=line,
        shell=shell,
        with_ucx=any(option.partition("=")[0] == "--with-ucx" for option in image_file.mpi.configure),
        builds_mpi=image_file.mpi.source == "built" and not variant.host_mpi,
        distribution_mpi=image_file.mpi.source == "distribution" and not variant.host_mpi,
        system=packages,
        compiles=image_file.has_python and {"g++", "python3-dev"} <= {word.partition("=")[0] for word in packages},
        locked=locked is not None,
        built_s=built_s,
        secrets=build_secrets.variables(image_file.secrets),
        encoded=Text(build_secrets.ENCODED),
        from_base=from_base,
        keeps_torch=from_base and not brought.hashed and not locked,
        python=Text(python),
        installs=installs(brought, locked),
        post=Text((image_file.post or "").strip("\n")),
        labels=labels(image_file, variant, built_s),
        torch=brought.torch or (from_base and image_file.training != "none"),
        run_training=Text(shlex.join(process.module(python, "torusrun.training", root=TRAINING))),
        at=_PLACES,
    )


_PLACES = {
    "python": PYTHON, "training": TRAINING, "path": ON_PATH, "mpi": OPENMPI, "host_mpi": HOST_MPI,
    "wheelhouse": WHEELHOUSE,
    "build_only": BUILD_ONLY, "installed": INSTALLED,
}  # fmt: skip


def header(image_file: ImageFile) -> list[Text]:
    """The lines that name the base of a stage."""
    base = image_file.base
    for kind, reference in (("docker", base.docker), ("oras", base.oras)):
        if reference:
            # Some registry clients refuse a tag beside a digest. The digest alone identifies the image.
            named = re.sub(r":[^:/]+$", "", reference) + f"@{base.digest}" if base.digest else reference
            return [Text(f"Bootstrap: {kind}"), Text(f"From: {line(named, 'image')}")]
    if base.debootstrap:
        suite = [Text("Bootstrap: debootstrap"), Text(f"OSVersion: {line(base.debootstrap, 'suite')}")]
        return [*suite, *([Text(f"MirrorURL: {line(base.mirror, 'mirror')}")] if base.mirror else [])]
    for kind in ("docker_archive", "oci_archive", "folder", "sif"):
        if getattr(base, kind):
            bootstrap = kind.replace("_", "-") if kind.endswith("_archive") else "localimage"
            return [Text(f"Bootstrap: {bootstrap}"), Text("From: base")]
    raise UserError(f"the image file {image_file.name!r} has no base; give it docker, folder, sif or debootstrap")


def system(image_file: ImageFile, variant: Variant, brought: Brought, locked: PackageLock | None = None) -> list[str]:
    """The Debian packages to install: those of the image file, and those that its other parts need."""
    if locked:
        return [f"{package.name}={package.version}" for package in locked.system]
    needed = list(image_file.system)
    if image_file.has_python and image_file.python.source == "distribution":
        needed += ["ca-certificates", "python3", "python3-venv"]
    if brought.from_git:
        needed += ["git"]
    if image_file.mpi.source == "distribution" and not variant.host_mpi:
        needed += ["openmpi-bin"]
    return sorted({package.partition("=")[0]: package for package in reversed(needed)}.values())


def installs(brought: Brought, locked: PackageLock | None = None) -> list[list[str]]:
    """The arguments of each call of `pip install`."""
    if locked is None:
        return [list(brought.words)] if brought.words else []
    exact = [
        ["--no-deps", "-r", f"{BUILD_ONLY}/{name}"]
        for name, _ in locked.requirements([name for name, _ in brought.archives])
    ]
    return [[*(["--require-hashes"] if number == 0 else []), *words] for number, words in enumerate(exact)]


def labels(image_file: ImageFile, variant: Variant, built_s: int = 0) -> dict[str, str]:
    """The image's labels: those for the checks and the run folder, then the image file's own.

    `built_s` is the time of the lock from which it is built, 0 for none: a runtime writes the current time.
    """
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
        **{f"torusrun.{name}": getattr(cuda, name, None) for name in ("cudnn", "nccl", "driver")},
        "torusrun.architectures": ",".join(cuda.architectures) if cuda else None,
        "torusrun.training": image_file.training,
        "org.label-schema.build-date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(built_s)) if built_s else None,
    }
    return {name: value for name, value in [*found.items(), *image_file.labels.items()] if value}
