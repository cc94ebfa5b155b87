"""From an image file to all inputs of its build: read, rendered and checked, without starting a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions import definition_file, package_lock
from torusrun.orchestrator.images.definitions.definition import Variant, render
from torusrun.orchestrator.images.definitions.dockerfile import definition as dockerfile
from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile, load
from torusrun.orchestrator.images.definitions.inputs import Inputs, base_checksum, collect
from torusrun.orchestrator.images.definitions.package_lock import PackageLock
from torusrun.orchestrator.images.definitions.requirements import brought


@dataclass(frozen=True)
class ToBuild:
    """An image file with all inputs of its build."""

    image_file: ImageFile
    inputs: Inputs
    advice: tuple[str, ...] = ()  # the parts that make the image less repeatable than possible


def prepare(
    path: Path,
    variant: Variant,
    wheelhouse: Path | None = None,
    lock: Path | None = None,
    *,
    context: Path | None = None,
) -> ToBuild:
    """The inputs of a build of the image file at `path`; `context` replaces its own. Raises UserError if it fails."""
    image_file = _read(path, context)
    _check(image_file, path, variant, wheelhouse, lock)
    collected = _collected(image_file, path, variant)
    inputs = _rendered(collected, image_file, path, variant)
    if variant.offline and image_file.dockerfile:
        _check_stages(inputs.definition, path)
    if wheelhouse or lock:
        variant = replace(variant, wheelhouse=wheelhouse is not None)
        built = _rendered(collected, image_file, path, variant, package_lock.for_build(lock) if lock else None)
        inputs = replace(built, wheelhouse=base_checksum(wheelhouse) if wheelhouse else "", plain=inputs.key)
    return ToBuild(image_file, inputs, tuple(_advice(image_file, inputs)))


def sources(path: Path, host_mpi: bool) -> list[str]:
    """The keys by which a run finds the images of the image file at `path`, built with or without network."""
    image_file = load(path)
    collected = _collected(image_file, path, Variant(host_mpi=host_mpi))
    variants = [Variant(host_mpi=host_mpi, offline=offline) for offline in (False, True)]
    return [_rendered(collected, image_file, path, variant).key for variant in variants]


def rendered(path: Path, variant: Variant, context: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """(the definition of the image file at `path`, notes for the user). Raises UserError if it cannot be rendered."""
    image_file = _read(path, context)
    if image_file.definition or image_file.dockerfile:
        inputs = _rendered(_collected(image_file, path, variant), image_file, path, variant)
        return inputs.definition, inputs.notes
    return render(image_file, variant, brought(image_file.python, path.parent)), ()


def _read(path: Path, context: Path | None) -> ImageFile:
    """The image file at `path`; the folder `context`, if given, replaces the folder of its Dockerfile."""
    image_file = load(path)
    if context and not image_file.dockerfile:
        raise UserError(f"--context: {path} is not a Dockerfile and names none; leave it out")
    return replace(image_file, context=str(context)) if context else image_file


def _collected(image_file: ImageFile, path: Path, variant: Variant) -> Inputs:
    """The inputs that are read once for the definitions of several variants."""
    if image_file.definition:
        return definition_file.own_inputs(image_file.definition, path.parent, image_file.training, variant.offline)
    return collect(image_file, path.parent)


def _rendered(
    inputs: Inputs, image_file: ImageFile, path: Path, variant: Variant, locked: PackageLock | None = None
) -> Inputs:
    """The inputs with the definition of this variant."""
    if image_file.definition:
        return inputs
    if image_file.dockerfile:
        return dockerfile.convert(image_file, path.parent, variant, inputs)
    packages = brought(image_file.python, path.parent)
    definition = render(image_file, variant, packages, locked)
    definition_file.lint(definition)
    texts = locked.requirements([name for name, _ in packages.archives]) if locked else packages.texts
    built_s = locked.built_s if locked else 0
    return replace(inputs, definition=definition, texts=tuple(texts), archives=packages.archives, built_s=built_s)


def _check(image_file: ImageFile, path: Path, variant: Variant, wheelhouse: Path | None, lock: Path | None) -> None:
    if lock and (image_file.definition or image_file.dockerfile):
        own = "definition" if image_file.definition else "Dockerfile"
        raise UserError(f"{path}: a {own} of your own cannot be built from a lock; write the versions into it")
    if wheelhouse and not wheelhouse.is_dir():
        raise UserError(f"{wheelhouse}: the wheelhouse is not a folder; make one with `pip download`")
    if not variant.offline:
        return
    python = image_file.python
    if (python.packages or python.requirements) and not wheelhouse:
        raise UserError(f"{path}: an offline build needs a wheelhouse for its Python packages; give --wheelhouse")
    if image_file.dockerfile and image_file.base == Base():
        raise UserError(
            f"{path}: an offline build cannot start from the image of FROM; name a local 'base' in its place, in an "
            f"image file with this 'dockerfile'"
        )
    if image_file.base.docker:
        raise UserError(
            f"{path}: an offline build cannot start from 'base.docker', which needs the network; use a 'folder', "
            f"'sif', 'docker_archive' or 'oci_archive'"
        )


def _check_stages(definition: str, path: Path) -> None:
    """Raise UserError if a stage of an offline build, as of COPY --from=IMAGE, starts from an image of a registry."""
    for stage in definition_file.stages(definition):
        if stage.header.get("bootstrap") == "docker":
            image = stage.header.get("from", "")
            raise UserError(f"{path}: an offline build cannot copy from {image}, which needs the network; COPY a file")


def _advice(image_file: ImageFile, inputs: Inputs) -> Iterator[str]:
    """The reasons why the same image file can give another image tomorrow."""
    yield from inputs.notes
    base = image_file.base
    if base.docker and not base.digest:
        yield f"the base {base.docker} is named without 'digest': its tag can become another image"
    if (inputs.directory or image_file.dockerfile) and any(
        stage.header.get("bootstrap") in ("docker", "oras") and "@sha256:" not in stage.header.get("from", "")
        for stage in definition_file.stages(inputs.definition)
    ):
        what = "Dockerfile" if image_file.dockerfile else "definition"
        yield f"the {what} names a base without its digest (NAME@sha256:...): its tag can become another image"
