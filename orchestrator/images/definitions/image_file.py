"""Finds an image file, `containers/NAME.yaml`, by name or path, reads it, and reports conflicts of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shipped import shipped
from torusrun.orchestrator.images.definitions import build_secrets
from torusrun.orchestrator.images.definitions.dockerfile.instructions import is_dockerfile, is_name
from torusrun.orchestrator.images.definitions.image_keys import Base, Cuda, File, ImageFile, ImageMpi, Python
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.orchestrator.keys.read import Marks, read
from torusrun.training.recipe.near import did_you_mean

__all__ = ["Base", "Cuda", "File", "ImageFile", "ImageMpi", "Python", "find", "load"]
BASES = ("docker", "oras", "folder", "sif", "docker_archive", "oci_archive", "debootstrap")
REGISTRIES = ("docker", "oras")
MPI_CHECKSUM_MISSING = (
    "'mpi.sha256' must be the SHA-256 of the source archive: take the one that the project publishes, or download the "
    "archive, make sure that it is the right one, and write what `sha256sum` prints"
)
BESIDE_DEFINITION = ("name", "definition", "summary", "cuda", "secrets", "training")
BESIDE_DOCKERFILE = (
    "name", "dockerfile", "context", "arguments", "target", "base", "summary", "labels", "cuda", "secrets", "training",
)  # fmt: skip
OF_DOCKERFILE = ("context", "arguments", "target")
# A login written with variables, as https://$USER:$TOKEN@host, does not count: the build gets it from 'secrets'. Nor do
# the user names that a repository gives to everyone, as in https://git@github.com.
LOGIN = re.compile(r"(?i)\bhttps?://(?!(?:git|hg|anonymous)@)(?![^/\s@]*\$)[^/\s@'\"]+@")
LOGIN_MEND = "holds a login, which would stay in the image; give the URL without it, and the login in 'secrets'"


def find(name: str, beside: Path = Path()) -> Path:
    """The path of an image file: as it is given (a path, or a Dockerfile), or by the name of a shipped one."""
    if "/" in name or name.endswith((".yaml", ".yml", ".def")) or is_name(name):
        return beside / expanded(name)
    if (path := shipped("containers") / f"{name}.yaml").is_file():
        return path
    known = sorted(p.stem for p in shipped("containers").glob("*.yaml"))
    raise UserError(f"there is no image file {name!r} (shipped: {', '.join(known)}){did_you_mean(name, known)}")


def load(path: Path) -> ImageFile:
    """The image file at `path`, or one that names the definition or Dockerfile at `path`.

    Raises SpecError with every mistake.
    """
    if path.suffix == ".def":
        return ImageFile(_name(path.stem), definition=path.name)
    text = read_text(path, "image file")
    if is_dockerfile(path, text):
        return ImageFile(_name(path.absolute().parent.name), dockerfile=path.name)
    image_file, marks = read(ImageFile, text, str(path))
    if problems := [Problem(_mark(marks, key, path), message) for key, message in misfits(image_file)]:
        raise SpecError(problems)
    return image_file


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
    yield from _python(image_file)
    yield from _logins(image_file)
    yield from build_secrets.misnamed(image_file.secrets)
    yield from _post(image_file.post or "")
    targets = [file.to for file in image_file.files]
    for target in sorted({t for t in targets if targets.count(t) > 1}):
        yield "files", f"'files' puts two things at {target}; give each its own path"


def has_login(text: str) -> bool:
    """Whether a URL in `text` has a user name or a password before its host."""
    return LOGIN.search(text) is not None


def _alone(image_file: ImageFile, what: str, beside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    empty = type(image_file)(image_file.name)
    for field in fields(image_file):
        if field.name not in beside and getattr(image_file, field.name) != getattr(empty, field.name):
            yield field.name, f"{field.name!r} has no effect together with {what!r}; write it into the {what}"


def _base(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    base = image_file.base
    given = [kind for kind in BASES if getattr(base, kind)]
    if len(given) != 1:
        begins, said = (
            ("takes", f"not {' and '.join(given)}") if given else ("is missing: it takes", "and none is given")
        )
        yield "base", f"'base' {begins} exactly one of {', '.join(BASES[:-1])} and {BASES[-1]}, {said}"
    elif base.digest and given[0] not in REGISTRIES:
        yield "base.digest", "'base.digest' is only for 'base.docker' and 'base.oras'; other bases get a checksum"


def _mpi(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    mpi = image_file.mpi
    if mpi.source == "built" and not (mpi.version and mpi.url):
        yield "mpi", "'mpi' from: built needs 'version' and 'url' of the source archive"
    elif mpi.source == "built" and not mpi.sha256:
        yield "mpi", MPI_CHECKSUM_MISSING


def _python(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    python = image_file.python
    if python.source == "base" and image_file.base.debootstrap:
        yield "python", "'python' from: base needs a base that has Python; a debootstrap base has none"
    if image_file.training == "inside" and not image_file.has_python:
        yield "training", "'training: inside' needs Python packages, torch among them"


def _logins(image_file: ImageFile) -> Iterator[tuple[str, str]]:
    texts = {
        "base.mirror": [image_file.base.mirror],
        "mpi.url": [image_file.mpi.url],
        "python.indexes": image_file.python.indexes,
        "python.packages": image_file.python.packages,
        "post": [image_file.post],
        "environment": image_file.environment.values(),
        "labels": image_file.labels.values(),
        "arguments": image_file.arguments.values(),
    }
    for key, values in texts.items():
        if any(has_login(value) for value in values if value):
            yield key, f"{key!r} {LOGIN_MEND}"


def _post(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if re.match(r"\s*%|(?i:bootstrap:)", line):
            yield "post", f"'post' has a line that a definition reads as a section or stage: {line.strip()[:60]!r}"
    if "{{" in text or "\0" in text:
        yield "post", "'post' must not hold '{{', which newer runtimes take for a build argument, or a NUL character"
