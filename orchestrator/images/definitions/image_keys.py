"""The keys of an image file, as its author writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from orchestrator.images.definitions import kinds
from orchestrator.spec.about import about
from orchestrator.spec.kinds import LINE, NAME, VARIABLE, Limits


@dataclass(frozen=True)
class Base:
    """The start of the image: exactly one of BASES."""

    docker: Annotated[str, kinds.REFERENCE] | None = field(default=None, metadata=about("an image of a registry"))
    digest: Annotated[str, kinds.DIGEST] | None = field(
        default=None, metadata=about("digest of the registry's image; without it the same tag can become another image")
    )
    oras: Annotated[str, kinds.REFERENCE] | None = field(
        default=None, metadata=about("a SIF that a registry holds as an OCI artifact")
    )
    docker_archive: Annotated[str, LINE] | None = field(
        default=None, metadata=about("a file that `docker save` or `podman save` wrote")
    )
    oci_archive: Annotated[str, LINE] | None = field(
        default=None, metadata=about("a file in OCI's format, as `podman save --format oci-archive` writes it")
    )
    folder: Annotated[str, LINE] | None = field(default=None, metadata=about("a root file system in a local folder"))
    sif: Annotated[str, LINE] | None = field(default=None, metadata=about("a local SIF"))
    debootstrap: Annotated[str, kinds.SUITE] | None = field(
        default=None, metadata=about("a Debian or Ubuntu suite, installed from its packages")
    )
    mirror: Annotated[str, kinds.URL] | None = field(
        default=None, metadata=about("the source of debootstrap's packages; default: the building machine's own mirror")
    )


@dataclass(frozen=True)
class Python:
    """Python packages, installed into a venv at /opt/python or into the base's own Python."""

    source: Literal["distribution", "base"] = field(
        default="distribution",
        metadata=about(
            "distribution: a new venv with Debian's Python; base: the python3 that the base has, whose PyTorch stays",
            key="from",
        ),
    )
    packages: tuple[Annotated[str, kinds.REQUIREMENT], ...] = field(
        default=(), metadata=about("packages with exact versions, git references at a commit, paths of wheels")
    )
    requirements: Annotated[str, LINE] | None = field(
        default=None, metadata=about("a requirements file of pip, relative to the image file; its hashes are checked")
    )
    indexes: tuple[Annotated[str, kinds.URL], ...] = field(
        default=(), metadata=about("further package indexes, as for the wheels of one CUDA version")
    )


@dataclass(frozen=True)
class ImageMpi:
    """The image's own MPI. It is left out for a site that binds its own MPI instead."""

    source: Literal["distribution", "built", "none"] = field(
        default="none", metadata=about("distribution: its package; built: from the source in a first stage", key="from")
    )
    family: Literal["openmpi"] = field(default="openmpi", metadata=about("the implementation"))
    version: Annotated[str, kinds.VERSION] | None = field(default=None, metadata=about("its version"))
    url: Annotated[str, kinds.URL] | None = field(
        default=None, metadata=about("source archive (.tar.gz or .tar.bz2) of a built MPI")
    )
    sha256: Annotated[str, kinds.SHA256] | None = field(
        default=None, metadata=about("of the source archive; a built MPI needs it")
    )
    configure: tuple[Annotated[str, kinds.OPTION], ...] = field(default=(), metadata=about("options of configure"))
    pmix: Annotated[int, Limits(at_least=1, at_most=9)] | None = field(
        default=None, metadata=about("PMIx generation (major version) that it speaks")
    )


@dataclass(frozen=True)
class Cuda:
    """The image's needs from GPUs and their driver, for the checks and the labels."""

    version: Annotated[str, kinds.VERSION] = field(metadata=about("CUDA version of the libraries inside"))
    cudnn: Annotated[str, kinds.VERSION] | None = field(default=None, metadata=about("cuDNN version"))
    nccl: Annotated[str, kinds.VERSION] | None = field(default=None, metadata=about("NCCL version"))
    driver: Annotated[str, kinds.VERSION] | None = field(default=None, metadata=about("oldest driver it works with"))
    architectures: tuple[Annotated[str, kinds.ARCHITECTURE], ...] = field(
        default=(), metadata=about("GPU architectures that must have kernels, as in sm_70")
    )


@dataclass(frozen=True)
class File:
    """A file or folder of the user's, copied into the image."""

    source: Annotated[str, LINE] = field(metadata=about("file or folder, relative to the image file", key="from"))
    to: Annotated[str, kinds.INSIDE] = field(metadata=about("absolute path inside the image"))


@dataclass(frozen=True)
class ImageFile:
    """An image: its base, its software, and its needs from the machine."""

    name: Annotated[str, NAME] = field(metadata=about("name of the image"))
    base: Base = field(default_factory=Base, metadata=about("the image that it starts from"))
    definition: Annotated[str, LINE] | None = field(
        default=None, metadata=about("a definition file of your own, built as it is, instead of 'base' and all else")
    )
    summary: Annotated[str, kinds.LABEL] | None = field(
        default=None, metadata=about("its purpose, in one line", key="about")
    )
    system: tuple[Annotated[str, kinds.PACKAGE], ...] = field(default=(), metadata=about("Debian packages"))
    python: Python = field(default_factory=Python, metadata=about("Python packages"))
    mpi: ImageMpi = field(default_factory=ImageMpi, metadata=about("the MPI inside"))
    cuda: Cuda | None = field(default=None, metadata=about("CUDA, NCCL, driver and GPU architectures"))
    environment: dict[Annotated[str, VARIABLE], str] = field(
        default_factory=dict, metadata=about("environment variables inside; any text, never evaluated by a shell")
    )
    labels: dict[Annotated[str, kinds.LABEL_NAME], Annotated[str, kinds.LABEL]] = field(
        default_factory=dict, metadata=about("labels of the image")
    )
    files: tuple[File, ...] = field(default=(), metadata=about("own files to copy in"))
    post: str | None = field(
        default=None, metadata=about("lines of shell, run by root at the end of the build; /bin/sh stops at an error")
    )
    secrets: dict[Annotated[str, VARIABLE], Annotated[str, kinds.SECRET]] = field(
        default_factory=dict,
        metadata=about(
            "logins that the build alone uses, each from env:VARIABLE or file:PATH: a variable (as PIP_INDEX_URL), "
            "netrc, ca_bundle, registry_username, registry_password, registry_auth"
        ),
    )
    training: Literal["inside", "bound", "none"] = field(
        default="bound", metadata=about("the training package: copied in, bound from the host at start, or not used")
    )

    @property
    def has_python(self) -> bool:
        """Whether Python packages are installed, or the base has them."""
        return bool(self.python.packages or self.python.requirements or self.python.source == "base")
