"""An image file without a mirror takes the building machine's own."""

from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.image_file import Base, ImageFile
from torusrun.orchestrator.images.definitions.prepare import own_mirror, with_mirror

OLD = (
    "# deb http://old.example.org/debian x main\ndeb [signed-by=/k.gpg] http://near.example.org/debian/ bookworm main\n"
)
NEW = "Types: deb\nURIs: https://new.example.org/debian\nSuites: bookworm\n"


@pytest.mark.parametrize(
    ("text", "url"), [(OLD, "http://near.example.org/debian"), (NEW, "https://new.example.org/debian")]
)
def test_both_forms_of_sources_are_read(text: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(text)
    assert own_mirror(tmp_path) == url
    assert with_mirror(ImageFile("x", Base(debootstrap="bookworm")), tmp_path).base.mirror == url


def test_a_mirror_of_the_image_files_own_stays(tmp_path: Path) -> None:
    image_file = ImageFile("x", Base(debootstrap="bookworm", mirror="http://mine.example.org/debian"))
    assert with_mirror(image_file, tmp_path) is image_file


def test_a_machine_without_one_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name one in 'base.mirror'"):
        with_mirror(ImageFile("x", Base(debootstrap="bookworm")), tmp_path)
