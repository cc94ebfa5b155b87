"""The record of a run's image in its folder, and the check that the image is unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from torusrun.orchestrator.base.errors import SiteError, explained
from torusrun.orchestrator.base.json_files import write_json, write_text
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.recipe.key import Pattern


@dataclass(frozen=True)
class Image:
    """The record of a run's image in the run folder."""

    path: str
    sha256: Annotated[str, Pattern("a SHA-256", "[0-9a-f]{64}")]
    name: str
    key: str = ""
    bound_training: bool = True
    labels: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    definition: str = ""


@dataclass(frozen=True)
class Others:
    """The images of services that differ from the run's, by their names in the run."""

    images: dict[str, Image]


def keep(run: RunFolder, images: Mapping[str, Image], own: str | None) -> None:
    """Write the records of a run's images, by their names; the name `own` is that of the run's, with its definition."""
    if own and own in images:
        write_json(run.image, asdict(images[own]))
        if images[own].definition:
            write_text(run.definition, images[own].definition)
    if others := {name: image for name, image in images.items() if name != own}:
        write_json(run.images, asdict(Others(others)))


def kept(run: RunFolder) -> Image | None:
    """The image at the submission of a run; None for a run without an image. Raises SiteError for damage."""
    return read_record(run.image, Image)


def all_kept(run: RunFolder, own: str | None = None) -> dict[str, Image]:
    """The images of all roles of a run at its submission, by their names: that of the run itself is `own`."""
    image, others = kept(run), read_record(run.images, Others)
    return {**({own or "": image} if image else {}), **(others.images if others else {})}


def changed(image: Image) -> str | None:
    """How the file of an image has changed, in words; None if it is the same."""
    # Imported late: the import is slow, and jobs without an image do not need it.
    from torusrun.orchestrator.images.definitions.inputs import file_checksum

    reading = f"reading {image.path}, whose checksum is compared"
    with explained(f"{image.path}: the image of this run cannot be read"), busy(reading):
        checksum = file_checksum(Path(image.path))
    return None if checksum == image.sha256 else f"its SHA-256 is {checksum}, and was {image.sha256}"


def verify(image: Image) -> None:
    """Read a run's whole image and check its SHA-256. Raises SiteError if it has changed since submission."""
    if how := changed(image):
        raise SiteError(
            f"{image.path}: this is not the image that the run was submitted with: {how}; put the old one back, or "
            f"`torusrun resume RUN --new-image`"
        )
