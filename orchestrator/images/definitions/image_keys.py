"""The keys of an image file, as its author writes them.

Their kinds of text are strict: the header and labels of a definition have no quoting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.orchestrator.keys.kinds import LINE, NAME, VARIABLE, Limits, text_kind
from torusrun.training.recipe.key import key, needed

REFERENCE = text_kind(
    "an image reference",
    r"(?!.*(//|:/))[a-z0-9][A-Za-z0-9._:/-]*",
    "write it as debian:bookworm or registry.example.org/name:tag, without docker:// and without the digest",
)
DIGEST = text_kind("a digest", r"sha256:[0-9a-f]{64}", "write sha256: and 64 hexadecimal digits")
SHA256 = text_kind("a SHA-256 checksum", r"[0-9a-f]{64}", "write 64 hexadecimal digits")
SUITE = text_kind("a Debian or Ubuntu suite", r"[a-z][a-z0-9-]*", "write it as bookworm")
URL = text_kind("a URL", r"(https?|file)://[A-Za-z0-9._~:/?&=+@,%-]+", "write it as https://host/folder")
PACKAGE = text_kind(
    "a Debian package",
    r"[a-z0-9][a-z0-9+.-]*(=[A-Za-z0-9.+~:-]+)?",
    "write its name, or name=version",
)
_PYTHON_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9,._-]+\])?"
_PYTHON_SOURCE = r"(git\+(https?|ssh|file)|https?)://[A-Za-z0-9._~:/?&=+@,%#$(){}-]+"
REQUIREMENT = text_kind(
    "a Python package with its exact version",
    rf"{_PYTHON_NAME}==[0-9][A-Za-z0-9.+!_-]*|{_PYTHON_NAME} @ {_PYTHON_SOURCE}|[A-Za-z0-9._~/+-]+\.whl",
    "write it as torch==2.13.0, as NAME @ git+https://host/repository@COMMIT, or as the path of a wheel",
)
SECRET = text_kind(
    "the place of a secret",
    r"env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00-\x1f\x7f]+",
    "write env:VARIABLE or file:PATH",
)
VERSION = text_kind("a version", r"[0-9]+(\.[0-9A-Za-z]+)*", "write it as 4.1.6")
ARCHITECTURE = text_kind("a GPU architecture", r"sm_[0-9]{2,3}[a-z]?", "write it as sm_70")
OPTION = text_kind("a configure option", r"--[A-Za-z0-9][A-Za-z0-9=/._,+-]*", "write it as --without-verbs")
# No braces: newer runtimes replace {{ NAME }} anywhere in a definition. No outer spaces: runtimes trim labels.
LABEL_NAME = text_kind("a label's name", r"[A-Za-z0-9][A-Za-z0-9._/-]*", "use letters, digits, '.', '_', '/' and '-'")
LABEL = text_kind(
    "a label",
    r"(?!.*\{\{)(?! )[^\x00-\x1f\x7f\x85\u2028\u2029]+(?<! )",
    "it must be one line, without outer spaces, control characters or '{{'",
)
INSIDE = text_kind(
    "a path inside the image",
    r"(/(?!\.\.?(/|$))[A-Za-z0-9._+@-]+)+",
    "write an absolute path of letters, digits and '._+@-', as in /opt/data/list.txt",
)


@dataclass(frozen=True)
class Base:
    """The start of the image: exactly one of BASES."""

    docker: Annotated[str, REFERENCE] | None = key(None, "an image of a registry")
    digest: Annotated[str, DIGEST] | None = key(
        None, "digest of the registry's image; without it the same tag can become another image"
    )
    oras: Annotated[str, REFERENCE] | None = key(None, "a SIF that a registry holds as an OCI artifact")
    docker_archive: Annotated[str, LINE] | None = key(None, "a file that `docker save` or `podman save` wrote")
    oci_archive: Annotated[str, LINE] | None = key(
        None, "a file in OCI's format, as `podman save --format oci-archive` writes it"
    )
    folder: Annotated[str, LINE] | None = key(None, "a root file system in a local folder")
    sif: Annotated[str, LINE] | None = key(None, "a local SIF")
    debootstrap: Annotated[str, SUITE] | None = key(None, "a Debian or Ubuntu suite, installed from its packages")
    mirror: Annotated[str, URL] | None = key(
        None, "the source of debootstrap's packages; default: the building machine's own mirror"
    )


@dataclass(frozen=True)
class Python:
    """Python packages, installed into a venv at /opt/python or into the base's own Python."""

    source: Literal["distribution", "base"] = key(
        "distribution",
        "distribution: a new venv with Debian's Python; base: the python3 of the base, with its PyTorch",
        name="from",
    )
    packages: tuple[Annotated[str, REQUIREMENT], ...] = key(
        (), "packages with exact versions, git references at a commit, paths of wheels"
    )
    requirements: Annotated[str, LINE] | None = key(
        None, "a requirements file of pip, relative to the image file; its hashes are checked"
    )
    indexes: tuple[Annotated[str, URL], ...] = key(
        (), "further package indexes, such as one for the wheels of one CUDA version"
    )


@dataclass(frozen=True)
class ImageMpi:
    """The image's own MPI. It is left out for a site that binds its own MPI instead."""

    source: Literal["distribution", "built", "none"] = key(
        "none", "distribution: its package; built: from the source in a first stage", name="from"
    )
    family: Literal["openmpi"] = key("openmpi", "the implementation")
    version: Annotated[str, VERSION] | None = key(None, "its version")
    url: Annotated[str, URL] | None = key(None, "source archive (.tar.gz or .tar.bz2) of a built MPI")
    sha256: Annotated[str, SHA256] | None = key(None, "of the source archive; a built MPI needs it")
    configure: tuple[Annotated[str, OPTION], ...] = key((), "options of configure")
    system: tuple[Annotated[str, PACKAGE], ...] = key(
        (), "Debian packages that a built MPI is compiled with, such as libucx-dev for --with-ucx"
    )
    pmix: Annotated[int, Limits(at_least=1, at_most=9)] | None = key(
        None, "PMIx generation (major version) that it speaks"
    )


@dataclass(frozen=True)
class Cuda:
    """The image's needs from GPUs and their driver, for the checks and the labels."""

    version: Annotated[str, VERSION] = needed("CUDA version of the libraries inside")
    cudnn: Annotated[str, VERSION] | None = key(None, "cuDNN version")
    nccl: Annotated[str, VERSION] | None = key(None, "NCCL version")
    driver: Annotated[str, VERSION] | None = key(None, "oldest driver it works with")
    architectures: tuple[Annotated[str, ARCHITECTURE], ...] = key(
        (), "GPU architectures that must have kernels, as in sm_70"
    )


@dataclass(frozen=True)
class File:
    """A file or folder of the user's, copied into the image."""

    source: Annotated[str, LINE] = needed("file or folder, relative to the image file", name="from")
    to: Annotated[str, INSIDE] = needed("absolute path inside the image")


@dataclass(frozen=True)
class ImageFile:
    """An image: its base, its software, and its needs from the machine."""

    name: Annotated[str, NAME] = needed("name of the image")
    base: Base = key(Base(), "the image that it starts from")
    definition: Annotated[str, LINE] | None = key(
        None, "a definition file of your own, built unchanged, instead of 'base' and all other keys"
    )
    dockerfile: Annotated[str, LINE] | None = key(
        None, "a Dockerfile, instead of all other keys but 'base', which replaces the image of every FROM"
    )
    context: Annotated[str, LINE] | None = key(
        None, "the folder from which the Dockerfile copies, as the last word of `docker build`; default: its own"
    )
    arguments: dict[Annotated[str, VARIABLE], str] = key({}, "values of the Dockerfile's ARG, as `docker --build-arg`")
    target: Annotated[str, LINE] | None = key(None, "the stage of the Dockerfile that is the image; default: the last")
    summary: Annotated[str, LABEL] | None = key(None, "its purpose, in one line", name="about")
    system: tuple[Annotated[str, PACKAGE], ...] = key((), "Debian packages")
    python: Python = key(Python(), "Python packages")
    mpi: ImageMpi = key(ImageMpi(), "the MPI inside")
    cuda: Cuda | None = key(None, "CUDA, NCCL, driver and GPU architectures")
    environment: dict[Annotated[str, VARIABLE], str] = key(
        {}, "environment variables inside; any text, never evaluated by a shell"
    )
    labels: dict[Annotated[str, LABEL_NAME], Annotated[str, LABEL]] = key({}, "labels of the image")
    files: tuple[File, ...] = key((), "own files to copy in")
    post: str | None = key(None, "lines of shell, run by root at the end of the build; /bin/sh stops at an error")
    secrets: dict[Annotated[str, VARIABLE], Annotated[str, SECRET]] = key(
        {},
        "logins that only the build uses, each from env:VARIABLE or file:PATH: a variable (as PIP_INDEX_URL), "
        "netrc, ca_bundle, registry_username, registry_password, registry_auth",
    )
    training: Literal["inside", "bound", "none"] = key(
        "bound", "the training package: copied in, bound from the host at start, or not used"
    )

    @property
    def has_python(self) -> bool:
        """Whether Python packages are installed, or the base has them."""
        return bool(self.python.packages or self.python.requirements or self.python.source == "base")
