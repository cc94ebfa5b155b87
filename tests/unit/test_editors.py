"""New run and site files name their JSON schema, as editors look for it."""

import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.keys.editors import schema_line

LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)\n")  # \S+ is what the language server reads


def schema_of(file: Path) -> dict[str, object]:
    """The schema that the first line of a file names."""
    line = LINE.match(file.read_text())
    assert line, file.read_text()
    content: dict[str, object] = json.loads(Path(unquote(urlsplit(line[1]).path)).read_text())
    return content


@pytest.mark.parametrize("config", ["", "a folder with spaces"])
def test_what_is_written_names_the_schema_of_its_kind(
    config: str, home: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    if config:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / config))
    monkeypatch.chdir(home)
    prints(capsys, "examples", "programs/ddp", "--save", "example.yaml")
    prints(capsys, "run", "--code", "none", "--save", "typed.yaml", "--", "true")
    prints(capsys, "init", "mine", "--scheduler", "local", "--yes", "--json")
    sites = (home / (config or ".config")) / "torusrun" / "sites"
    for file, kind in ((home / "example.yaml", "run"), (home / "typed.yaml", "run"), (sites / "mine.yaml", "site")):
        assert schema_of(file) == json.loads(prints(capsys, "schema", kind))
    prints(capsys, "plan", "typed.yaml", "--site", "mine")


def test_a_schema_of_another_version_is_replaced_and_without_a_folder_the_line_is_left_out(home: Path) -> None:
    line = schema_line("run")
    file = home / ".config" / "torusrun" / "run.schema.json"
    whole = file.read_text()
    file.write_text("{}")
    assert schema_line("run") == line and file.read_text() == whole
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("a file")
    assert schema_line("run") == ""


def test_the_skill_has_the_page_for_agents_without_its_links(capsys: Capsys) -> None:
    text = prints(capsys, "examples", "--skill")
    assert re.match(r"---\nname: torusrun\ndescription: >-\n(  .*\n)+---\n# For agents\n", text)
    assert "](" not in text and "## A safe order" in text
    assert json.loads(prints(capsys, "examples", "--skill", "--json"))["skill"] == text
    assert "leave out the example" in refuses(capsys, "examples", "digits", "--skill")
