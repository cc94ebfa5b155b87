"""The recipes for conda and Spack ask for what pyproject.toml asks for."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict[str, dict[str, str]]:
    """The oldest versions of the dependencies by group, '' for what every installation has."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = {"": table["project"]["dependencies"], **table["project"]["optional-dependencies"]}
    groups |= {"build": table["build-system"]["requires"], "version": [f"torusrun>={table['project']['version']}"]}
    split = {name: [re.match(r"([a-z0-9-]+)>=([\d.]+)", each) for each in listed] for name, listed in groups.items()}
    return {name: {found[1]: found[2] for found in matched if found} for name, matched in split.items()}


def test_the_recipe_for_conda_is_that_of_the_wheel(project: dict[str, dict[str, str]]) -> None:
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    needs = recipe["requirements"]
    run = dict(each.split(" >=") for each in needs["run"])
    assert run.pop("python") == "${{ python_min }}" and recipe["context"]["python_min"] == "3.10"
    assert run == project[""]
    assert {f"{name} >={oldest}" for name, oldest in project["build"].items()} < {*needs["host"]}
    assert recipe["context"]["version"] == project["version"]["torusrun"]


def test_the_recipe_for_spack_is_that_of_the_wheel(project: dict[str, dict[str, str]]) -> None:
    text = (ROOT / "packaging/spack/package.py").read_text()
    compile(text, "package.py", "exec")
    needed = dict(re.findall(r'depends_on\("py-([a-z0-9-]+)@([\d.]+):"', text))
    assert needed == {**project[""], **project["build"], **project["train"]}
    assert re.findall(r'version\("([\d.]+)"', text) == [project["version"]["torusrun"]]
