"""Turns an image file into the definition file from which singularity and apptainer build.

The text names no path of this machine. The files that it copies lie beside it under fixed names (`files/0`, `base`). So
an image file gives the same text, and the same image in the cache, on every machine.

The runtime splits a definition into stages and sections by its lines before any shell reads it. So shell quotes do not
protect a value: a line in it that begins with `%post` starts a section, and one with `Bootstrap:` a stage.
`{{ NAME }}` is replaced everywhere (Apptainer 1.2, SingularityCE 4.0 and newer).
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
from torusrun.orchestrator.images.definitions.image_file import LOCAL_BASES, MPI_CHECKSUM_MISSING, ImageFile
from torusrun.orchestrator.images.definitions.package_lock import INSTALLED, PackageLock
from torusrun.orchestrator.images.definitions.requirements import BUILD_ONLY, Brought

PYTHON = "/opt/python"
OPENMPI = "/opt/openmpi"
WHEELHOUSE = f"{BUILD_ONLY}/wheels"
_STAGE = re.compile("(?i)(bootstrap)(:)")


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
    """The definition. Raises UserError if a value cannot be written into it.

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
    if base.docker:
        # Some registry clients refuse a tag beside a digest. The digest alone identifies the image.
        named = re.sub(r":[^:/]+$", "", base.docker) + f"@{base.digest}" if base.digest else base.docker
        return from_registry(named)
    for kind in LOCAL_BASES:
        if getattr(base, kind):
            bootstrap = kind.replace("_", "-") if kind.endswith("_archive") else "localimage"
            return [Text(f"Bootstrap: {bootstrap}"), Text("From: base")]
    raise UserError(f"the image file {image_file.name!r} has no base; give it docker, folder or sif")


def from_registry(image: str) -> list[Text]:
    """The lines that name an image of a registry as the base of a stage."""
    return [Text("Bootstrap: docker"), Text(f"From: {line(image, 'image')}")]


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
    files = locked.requirements([name for name, _ in brought.archives])
    hashed, *others = [["--no-deps", "-r", f"{BUILD_ONLY}/{name}"] for name, _ in files]
    return [["--require-hashes", *hashed], *others]


def labels(image_file: ImageFile, variant: Variant, built_s: int = 0) -> dict[str, str]:
    """The image's labels: those for the checks and the run folder, then the image file's own.

    `built_s` is the time of the lock from which it is built. Without a lock (0) a runtime writes the current time.
    """
    own: dict[str, str | None] = {
        "org.opencontainers.image.title": image_file.name,
        "torusrun.image": image_file.name,
        "torusrun.variant": variant.name,
        "torusrun.training": image_file.training,
        "org.label-schema.build-date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(built_s)) if built_s else None,
    }
    return {name: value for name, value in [*own.items(), *image_file.labels.items()] if value}


def shell(value: str) -> Text:
    """`value` as one word of a shell section.

    A line break stays inside quotes, but no line begins or ends with text of the value: `''` stands before and after.
    Raises UserError for a NUL, which an environment cannot hold.
    """
    if "\0" in value:
        raise UserError(f"{value!r}: a NUL character cannot be part of a value")
    if re.fullmatch("[A-Za-z0-9@+=,./:_-]+", value) and not _STAGE.search(value):
        return Text(value)
    quoted = "'" + value.replace("'", "'\"'\"'") + "'"
    for _ in range(2):  # the second pass is for a second brace in a row
        quoted = quoted.replace("{{", "{''{")
    return Text(_STAGE.sub(r"\1''\2", quoted).replace("\n", "''\n''"))


def export(name: str, value: str) -> Text:
    """A line of a shell section that sets a variable."""
    return Text(f"export {name}={shell(value)}")


def line(value: str, what: str) -> Text:
    """`value` as the rest of a header's or label's line, which has no quotes. Raises UserError unless it is plain."""
    if value != value.strip() or len(value.splitlines()) != 1 or re.search(r"[\x00-\x1f\x7f#]|\{\{|\\$", value):
        raise UserError(f"{what} {value!r} cannot be written into a definition: it must be one plain line")
    return Text(value)
