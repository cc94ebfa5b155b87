"""The keys of an image file, as its author writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from orchestrator.images.definitions import kinds
from orchestrator.spec.kinds import LINE, NAME, VARIABLE, Limits
from training.recipe.key import key, needed


@dataclass(frozen=True)
class Base:
    """The start of the image: exactly one of BASES."""

    docker: Annotated[str, kinds.REFERENCE] | None = key(None, "an image of a registry")
    digest: Annotated[str, kinds.DIGEST] | None = key(
        None, "digest of the registry's image; without it the same tag can become another image"
    )
    oras: Annotated[str, kinds.REFERENCE] | None = key(None, "a SIF that a registry holds as an OCI artifact")
    docker_archive: Annotated[str, LINE] | None = key(None, "a file that `docker save` or `podman save` wrote")
    oci_archive: Annotated[str, LINE] | None = key(
        None, "a file in OCI's format, as `podman save --format oci-archive` writes it"
    )
    folder: Annotated[str, LINE] | None = key(None, "a root file system in a local folder")
    sif: Annotated[str, LINE] | None = key(None, "a local SIF")
    debootstrap: Annotated[str, kinds.SUITE] | None = key(None, "a Debian or Ubuntu suite, installed from its packages")
    mirror: Annotated[str, kinds.URL] | None = key(
        None, "the source of debootstrap's packages; default: the building machine's own mirror"
    )


@dataclass(frozen=True)
class Python:
    """Python packages, installed into a venv at /opt/python or into the base's own Python."""

    source: Literal["distribution", "base"] = key(
        "distribution",
        "distribution: a new venv with Debian's Python; base: the python3 that the base has, whose PyTorch stays",
        name="from",
    )
    packages: tuple[Annotated[str, kinds.REQUIREMENT], ...] = key(
        (), "packages with exact versions, git references at a commit, paths of wheels"
    )
    requirements: Annotated[str, LINE] | None = key(
        None, "a requirements file of pip, relative to the image file; its hashes are checked"
    )
    indexes: tuple[Annotated[str, kinds.URL], ...] = key(
        (), "further package indexes, as for the wheels of one CUDA version"
    )


@dataclass(frozen=True)
class ImageMpi:
    """The image's own MPI. It is left out for a site that binds its own MPI instead."""

    source: Literal["distribution", "built", "none"] = key(
        "none", "distribution: its package; built: from the source in a first stage", name="from"
    )
    family: Literal["openmpi"] = key("openmpi", "the implementation")
    version: Annotated[str, kinds.VERSION] | None = key(None, "its version")
    url: Annotated[str, kinds.URL] | None = key(None, "source archive (.tar.gz or .tar.bz2) of a built MPI")
    sha256: Annotated[str, kinds.SHA256] | None = key(None, "of the source archive; a built MPI needs it")
    configure: tuple[Annotated[str, kinds.OPTION], ...] = key((), "options of configure")
    pmix: Annotated[int, Limits(at_least=1, at_most=9)] | None = key(
        None, "PMIx generation (major version) that it speaks"
    )


@dataclass(frozen=True)
class Cuda:
    """The image's needs from GPUs and their driver, for the checks and the labels."""

    version: Annotated[str, kinds.VERSION] = needed("CUDA version of the libraries inside")
    cudnn: Annotated[str, kinds.VERSION] | None = key(None, "cuDNN version")
    nccl: Annotated[str, kinds.VERSION] | None = key(None, "NCCL version")
    driver: Annotated[str, kinds.VERSION] | None = key(None, "oldest driver it works with")
    architectures: tuple[Annotated[str, kinds.ARCHITECTURE], ...] = key(
        (), "GPU architectures that must have kernels, as in sm_70"
    )


@dataclass(frozen=True)
class File:
    """A file or folder of the user's, copied into the image."""

    source: Annotated[str, LINE] = needed("file or folder, relative to the image file", name="from")
    to: Annotated[str, kinds.INSIDE] = needed("absolute path inside the image")


@dataclass(frozen=True)
class ImageFile:
    """An image: its base, its software, and its needs from the machine."""

    name: Annotated[str, NAME] = needed("name of the image")
    base: Base = key(Base(), "the image that it starts from")
    definition: Annotated[str, LINE] | None = key(
        None, "a definition file of your own, built as it is, instead of 'base' and all else"
    )
    summary: Annotated[str, kinds.LABEL] | None = key(None, "its purpose, in one line", name="about")
    system: tuple[Annotated[str, kinds.PACKAGE], ...] = key((), "Debian packages")
    python: Python = key(Python(), "Python packages")
    mpi: ImageMpi = key(ImageMpi(), "the MPI inside")
    cuda: Cuda | None = key(None, "CUDA, NCCL, driver and GPU architectures")
    environment: dict[Annotated[str, VARIABLE], str] = key(
        {}, "environment variables inside; any text, never evaluated by a shell"
    )
    labels: dict[Annotated[str, kinds.LABEL_NAME], Annotated[str, kinds.LABEL]] = key({}, "labels of the image")
    files: tuple[File, ...] = key((), "own files to copy in")
    post: str | None = key(None, "lines of shell, run by root at the end of the build; /bin/sh stops at an error")
    secrets: dict[Annotated[str, VARIABLE], Annotated[str, kinds.SECRET]] = key(
        {},
        "logins that the build alone uses, each from env:VARIABLE or file:PATH: a variable (as PIP_INDEX_URL), "
        "netrc, ca_bundle, registry_username, registry_password, registry_auth",
    )
    training: Literal["inside", "bound", "none"] = key(
        "bound", "the training package: copied in, bound from the host at start, or not used"
    )

    @property
    def has_python(self) -> bool:
        """Whether Python packages are installed, or the base has them."""
        return bool(self.python.packages or self.python.requirements or self.python.source == "base")
