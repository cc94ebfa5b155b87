"""Nothing of what lies in the folder that a user stands in is run, on the login node or in the job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import process
from tests.e2e.places import ROOT, Local

PACKAGES = ("training", "orchestrator")
MODULES = ("submitit", "subprocess", "runpy", "sitecustomize", "yaml", "torch", "json")
PLANTED = [*(f"{name}/__{part}__.py" for name in PACKAGES for part in ("init", "main")), *(f"{m}.py" for m in MODULES)]


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which somebody has left modules of the names that torusrun imports."""
    folder = tmp_path / "shared"
    for name in PLANTED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"open({str(tmp_path / 'pwned')!r}, 'a').write({name!r} + chr(10))\n")
    return folder


@pytest.fixture
def torusrun(tmp_path: Path) -> Path:
    """The command, as pip installs it."""
    command = tmp_path / "bin" / "torusrun"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nimport sys\nfrom orchestrator.cli import main\nsys.exit(main())\n")
    command.chmod(0o755)
    return command


def pwned(shared: Path) -> str:
    found = shared.parent / "pwned"
    return found.read_text() if found.exists() else ""


@pytest.mark.parametrize("path", [str(ROOT), f"{ROOT}::lib:.:"], ids=["absolute", "relative"])
def test_a_run_submitted_from_a_shared_folder_is_the_users_own(
    local: Local, shared: Path, torusrun: Path, path: str
) -> None:
    """The PYTHONPATH of the client itself is its user's affair; what it starts gets the absolute entries alone."""
    local.write_spec()
    spec, site = local.folder / "run.yaml", local.folder / "site.yaml"
    settings = ["--set", f"site={site}", "--set", "train.epochs=2"]
    wrapper = shared.parent / "client.py"
    wrapper.write_text(
        f"import os, sys\nos.environ['PYTHONPATH'] = {path!r}\n"
        "from orchestrator.cli import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    said = subprocess.run(
        [sys.executable, str(wrapper), "submit", str(spec), *settings, "--wait"],
        cwd=shared, env=local.env, text=True, capture_output=True, timeout=240,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    assert not pwned(shared), f"code of the shared folder was run: {pwned(shared)}"
    view = local.view(said.stdout.split()[0])
    assert view["state"] == "COMPLETED" and view["accuracy"] > 0.5, "the training itself must have run"


def test_verbs_in_a_shared_folder_run_nothing_of_it(local: Local, shared: Path, torusrun: Path) -> None:
    for verb in (["status"], ["version"], ["plan", str(ROOT / "examples" / "digits.yaml")]):
        said = subprocess.run([torusrun, *verb], cwd=shared, env=local.env, text=True, capture_output=True, timeout=60)
        assert said.returncode == 0, said.stderr
    assert not pwned(shared)


def test_a_module_is_started_without_the_working_directory(shared: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:.:"}
    said = process.run(process.module(sys.executable, "orchestrator.cli", "version"), timeout_s=30, cwd=shared,
                       environment=environment)  # fmt: skip
    assert said.exit_code == 0 and said.stdout.startswith("torusrun "), said.stderr
    assert not pwned(shared)


def test_no_child_is_started_with_dash_m() -> None:
    """`python -m` looks into the working directory first; `process.module` does not."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*(ROOT / "orchestrator").rglob("*.py"), *(ROOT / "templates").rglob("*.j2")]
        for line in path.read_text().splitlines()
        if '"-m"' in line or "-m orchestrator" in line or "-m submitit" in line
        if '"""`python -m orchestrator` is' not in line
    ]
    assert not found, f"use process.module: {found}"
