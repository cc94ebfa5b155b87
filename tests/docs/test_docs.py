"""Everything a user is told to type is typed here, in the order of the page, in a home of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.plans.plan import plan
from orchestrator.spec.load import load

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = (ROOT / "docs" / "programs.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `torusrun` is this checkout's, and a folder with the examples."""
    home = tmp_path_factory.mktemp("readme")
    (home / "examples").symlink_to(ROOT / "examples")
    (home / "bin").mkdir()
    command = home / "bin" / "torusrun"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m orchestrator "$@"\n')
    command.chmod(0o755)
    path = f"{home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    return {**kept, "HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT)}


def test_every_command_of_the_readme_runs(shell: dict[str, str]) -> None:
    for line in "".join(blocks("sh")).splitlines():
        if line.startswith("make "):  # `make demo` and `make test` are what CI and this suite are: they must only exist
            assert re.search(rf"^{line.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
            continue
        said = subprocess.run(
            ["bash", "-c", line], cwd=shell["HOME"], env=shell, text=True, capture_output=True, timeout=300
        )  # fmt: skip
        assert said.returncode == 0, f"$ {line}\n{said.stdout}{said.stderr}"


def test_the_python_of_the_readme_runs(shell: dict[str, str]) -> None:
    for block in blocks("python"):
        said = subprocess.run(
            [sys.executable, "-c", block], cwd=shell["HOME"], env=shell, text=True, capture_output=True, timeout=300
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith("COMPLETED 0.9")


def test_the_yaml_of_the_readme_is_read(home: Path, tmp_path: Path) -> None:
    run, program, site = blocks("yaml")
    assert run == (ROOT / "examples" / "digits.yaml").read_text(), "the README shows the example as it is"
    (tmp_path / "site.yaml").write_text(site)
    (tmp_path / "run.yaml").write_text(run)
    assert load(tmp_path / "run.yaml").run.train.epochs == 20
    assert load(tmp_path / "run.yaml", site="site.yaml").site.node.gpus == 4
    assert program == (ROOT / "examples" / "programs" / "ddp.yaml").read_text()


@pytest.mark.parametrize("run", blocks("yaml", PROGRAMS))
def test_the_runs_of_the_page_on_programs_can_be_submitted(run: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = tmp_path / "docs" / "run.yaml"
    path.parent.mkdir()
    path.write_text(run)
    assert plan(path).run.command


def test_the_error_of_the_readme_is_the_error(home: Path, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("name: digits\nsite: local\nnoodes: 2\n")
    command = [sys.executable, "-m", "orchestrator", "plan", "run.yaml"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, timeout=60)
    (shown,) = blocks("text")
    assert said.stderr.startswith(shown.partition(", ...)")[0])


def test_the_table_of_keys_is_current(tmp_path: Path) -> None:
    program = "import make_spec; print(make_spec.text(), end='')"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'docs'}"}
    said = subprocess.run([sys.executable, "-c", program], env=env, text=True, capture_output=True, timeout=60)
    assert said.stdout == (ROOT / "docs" / "spec.md").read_text(), "run `python docs/make_spec.py`"


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https://)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
