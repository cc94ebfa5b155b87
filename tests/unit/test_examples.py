"""The examples that ship with torusrun: listed, printed, and saved as a start, without overwriting anything."""

import json
import re
from pathlib import Path

import pytest

from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.plan.plan import plan

ROOT = Path(__file__).resolve().parents[2]


def test_the_list_names_each_run_file_and_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "--json"]) == 0
    found = {row["name"]: row["about"] for row in json.loads(capsys.readouterr().out)["examples"]}
    runs = [path for path in (ROOT / "examples").rglob("*.yaml") if path.name != "site.yaml"]
    assert set(found) == {str(path.relative_to(ROOT / "examples").with_suffix("")) for path in runs}
    assert all(found.values()), "begin the file with a comment that says what it does"
    assert found["programs/ddp"] == "runs python ddp.py"


def test_an_example_is_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "digits"]) == 0
    assert capsys.readouterr().out == (ROOT / "examples/digits.yaml").read_text()


def test_a_saved_example_is_a_run_with_its_program(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "programs/ddp", "--save", str(home / "mine.yaml")]) == 0
    assert "ddp.py in its folder" in capsys.readouterr().out
    assert plan(home / "mine.yaml").run.command == ("python", "ddp.py") and (home / "ddp.py").is_file()


@pytest.mark.parametrize("there", ["mine.yaml", "ddp.py"])
def test_no_file_is_overwritten(there: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / there).write_text("mine")
    assert main(["examples", "programs/ddp", "--save", str(home / "mine.yaml")]) == 2
    assert f"{home / there} exists already" in capsys.readouterr().err
    assert (home / there).read_text() == "mine" and len(list(home.glob("*.*"))) == 1, "nothing else may be written"


def test_a_misspelt_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "digit"]) == 2
    assert "there is no example 'digit'" in (said := capsys.readouterr().err) and "did you mean 'digits'?" in said


def test_an_installed_package_has_every_shipped_folder() -> None:
    code = "".join(path.read_text() for path in (ROOT / "orchestrator").rglob("*.py"))
    used = set(re.findall(r'shipped\("(\w+)"\)', code))
    included = re.findall(r'^"(\w+)" = "torusrun/\1"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert used and used == set(included) - {"orchestrator", "training"}, "add the folder to pyproject.toml"
