"""An image file, `containers/NAME.yaml`: its keys, its path by a name, its reading, and conflicts of its parts.

The kinds of text are strict: the header and labels of a definition have no quoting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shipped import shipped
from torusrun.orchestrator.images.definitions import build_secrets
from torusrun.orchestrator.images.definitions.build_secrets import LOGIN_MEND, has_login
from torusrun.orchestrator.images.source import names_dockerfile
from torusrun.orchestrator.keys.kinds import LINE, NAME, VARIABLE, text_kind
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.orchestrator.keys.read import Marks, read
from torusrun.training.recipe.key import key, needed
from torusrun.training.recipe.near import did_you_mean

LOCAL_BASES = ("folder", "sif", "docker_archive", "oci_archive")
BASES = ("docker", *LOCAL_BASES)
MPI_CHECKSUM_MISSING = (
    "'mpi.sha256' must be the SHA-256 of the source archive: take the one that the project publishes, or download the "
    "archive, make sure that it is the right one, and write what `sha256sum` prints"
)
BESIDE_DEFINITION = ("name", "definition", "secrets", "training")
BESIDE_DOCKERFILE = (
    "name", "dockerfile", "context", "arguments", "target", "base", "labels", "secrets", "training",
)  # fmt: skip
OF_DOCKERFILE = ("context", "arguments", "target")
REFERENCE = text_kind(
    "an image reference",
    r"(?!.*(//|:/))[a-z0-9][A-Za-z0-9._:/-]*",
    "write it as debian:bookworm or registry.example.org/name:tag, without docker:// and without the digest",
)
DIGEST = text_kind("a digest", r"sha256:[0-9a-f]{64}", "write sha256: and 64 hexadecimal digits")
SHA256 = text_kind("a SHA-256 checksum", r"[0-9a-f]{64}", "write 64 hexadecimal digits")
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
    docker_archive: Annotated[str, LINE] | None = key(None, "a file that `docker save` or `podman save` wrote")
    oci_archive: Annotated[str, LINE] | None = key(
        None, "a file in OCI's format, as `podman save --format oci-archive` writes it"
    )
    folder: Annotated[str, LINE] | None = key(None, "a root file system in a local folder")
    sif: Annotated[str, LINE] | None = key(None, "a local SIF")


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
    """The image's own Open MPI. It is left out for a site that binds its own MPI instead."""

    source: Literal["distribution", "built", "none"] = key(
        "none", "distribution: its package; built: from the source in a first stage", name="from"
    )
    url: Annotated[str, URL] | None = key(None, "source archive (.tar.gz or .tar.bz2) of a built MPI")
    sha256: Annotated[str, SHA256] | None = key(None, "of the source archive; a built MPI needs it")
    configure: tuple[Annotated[str, OPTION], ...] = key((), "options of configure")
    system: tuple[Annotated[str, PACKAGE], ...] = key(
        (), "Debian packages that a built MPI is compiled with, such as libucx-dev for --with-ucx"
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
    system: tuple[Annotated[str, PACKAGE], ...] = key((), "Debian packages")
    python: Python = key(Python(), "Python packages")
    mpi: ImageMpi = key(ImageMpi(), "the MPI inside")
    architectures: tuple[Annotated[str, ARCHITECTURE], ...] = key(
        (), "GPU architectures for which PyTorch must have kernels, as in sm_70; the build tests it"
    )
    environment: dict[Annotated[str, VARIABLE], str] = key(
        {}, "environment variables inside; any text, never evaluated by a shell"
    )
    labels: dict[Annotated[str, LABEL_NAME], Annotated[str, LABEL]] = key({}, "labels of the image")
    files: tuple[File, ...] = key((), "own files to copy in")
    post: str | None = key(None, "lines of shell, run by root at the end of the build; /bin/sh stops at an error")
    secrets: dict[Annotated[str, VARIABLE], Annotated[str, SECRET]] = key(
        {},
        "logins that only the build uses, each from env:VARIABLE or file:PATH: a variable (as PIP_INDEX_URL), "
        "netrc or ca_bundle",
    )
    training: Literal["inside", "bound", "none"] = key(
        "bound", "the training package: copied in, bound from the host at start, or not used"
    )

    @property
    def has_python(self) -> bool:
        """Whether Python packages are installed, or the base has them."""
        return bool(self.python.packages or self.python.requirements or self.python.source == "base")


def find(name: str, beside: Path = Path()) -> Path:
    """The path of the image file `name`: a path or a Dockerfile in `beside`, or the name of a shipped image file."""
    if "/" in name or name.endswith((".yaml", ".yml", ".def")) or names_dockerfile(name):
        return beside / expanded(name)
    if (path := shipped("containers") / f"{name}.yaml").is_file():
        return path
    known = sorted(p.stem for p in shipped("containers").glob("*.yaml"))
    raise UserError(f"there is no image file {name!r} (shipped: {', '.join(known)}){did_you_mean(name, known)}")


def load(path: Path) -> ImageFile:
    """The image file at `path`, or an image file for the definition or Dockerfile at `path`.

    Raises SpecError with every mistake.
    """
    if path.suffix == ".def":
        return ImageFile(_name(path.stem), definition=path.name)
    text = read_text(path, "image file")
    if _is_dockerfile(path, text):
        return ImageFile(_name(path.absolute().parent.name), dockerfile=path.name)
    image_file, marks = read(ImageFile, text, str(path))
    if problems := [Problem(_mark(marks, key, path), message) for key, message in misfits(image_file)]:
        raise SpecError(problems)
    return image_file


def _is_dockerfile(path: Path, text: str) -> bool:
    """Whether a file is a Dockerfile, by its name or its first instruction."""
    if path.suffix in (".yaml", ".yml"):
        return False
    first = next((line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")), [])
    return names_dockerfile(path.name) or (len(first) > 1 and first[0].upper() in ("FROM", "ARG"))


def _name(text: str) -> str:
    """A text as the name of an image."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63]
    return name if name[:1].isalpha() else f"image-{name}"[:63]


def _mark(marks: Marks, key: str, path: Path) -> Mark:
    while key and key not in marks:
        key = key.rpartition(".")[0]
    return marks.get(key, Mark(str(path), 1, 1))


def misfits(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    """(key, its problem and the remedy) of every part that conflicts with others."""
    if image_file.definition:
        yield from _alone(image_file, "definition", BESIDE_DEFINITION)
    elif image_file.dockerfile:
        yield from _alone(image_file, "dockerfile", BESIDE_DOCKERFILE)
        yield from _base(image_file) if image_file.base != Base() else ()
    else:
        yield from ((name, f"{name!r} needs a 'dockerfile'") for name in OF_DOCKERFILE if getattr(image_file, name))
        yield from _base(image_file)
    yield from _mpi(image_file)
    if image_file.training == "inside" and not image_file.has_python:
        yield "training", "'training: inside' needs Python packages, torch among them"
    yield from _logins(image_file)
    yield from build_secrets.misnamed(image_file.secrets)
    yield from _post(image_file.post or "")
    targets = [file.to for file in image_file.files]
    for target in sorted({t for t in targets if targets.count(t) > 1}):
        yield "files", f"'files' puts two things at {target}; give each its own path"


def _alone(image_file: ImageFile, what: str, beside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    empty = type(image_file)(image_file.name)
    for field in fields(image_file):
        if field.name not in beside and getattr(image_file, field.name) != getattr(empty, field.name):
            yield field.name, f"{field.name!r} has no effect together with {what!r}; write it into the {what}"


def _base(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    base = image_file.base
    given = [kind for kind in BASES if getattr(base, kind)]
    if len(given) != 1:
        begins = "takes" if given else "is missing: it takes"
        ends = f"not {' and '.join(given)}" if given else "and none is given"
        yield "base", f"'base' {begins} exactly one of {', '.join(BASES[:-1])} and {BASES[-1]}, {ends}"
    elif base.digest and not base.docker:
        yield "base.digest", "'base.digest' is only for 'base.docker'; other bases get a checksum"


def _mpi(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    mpi = image_file.mpi
    if mpi.source == "built" and not mpi.url:
        yield "mpi", "'mpi' from: built needs 'url', the source archive"
    elif mpi.source == "built" and not mpi.sha256:
        yield "mpi", MPI_CHECKSUM_MISSING


def _logins(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    texts = {
        "mpi.url": [image_file.mpi.url],
        "python.indexes": image_file.python.indexes,
        "python.packages": image_file.python.packages,
        "post": [image_file.post],
        "environment": image_file.environment.values(),
        "labels": image_file.labels.values(),
        "arguments": image_file.arguments.values(),
    }
    for name, values in texts.items():
        if any(has_login(value) for value in values if value):
            yield name, f"{name!r} {LOGIN_MEND}"


def _post(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if re.match(r"\s*%|(?i:bootstrap:)", line):
            yield "post", f"'post' has a line that a definition reads as a section or stage: {line.strip()[:60]!r}"
    if "{{" in text or "\0" in text:
        yield "post", "'post' must not hold '{{', which newer runtimes take for a build argument, or a NUL character"
