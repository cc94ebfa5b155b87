"""A recipe without a mirror takes the building machine's own."""

from pathlib import Path

import pytest

from orchestrator.containers.mirror import completed, own
from orchestrator.containers.recipe import Base, Recipe
from orchestrator.errors import UserError

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
    assert own(tmp_path) == url
    assert completed(Recipe("x", Base(debootstrap="bookworm")), tmp_path).base.mirror == url


def test_a_mirror_of_the_recipes_own_stays(tmp_path: Path) -> None:
    recipe = Recipe("x", Base(debootstrap="bookworm", mirror="http://mine.example.org/debian"))
    assert completed(recipe, tmp_path) is recipe


def test_a_machine_without_one_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name one in 'base.mirror'"):
        completed(Recipe("x", Base(debootstrap="bookworm")), tmp_path)
