"""A scheduler that is no part of torusrun: found by the name of its class, and never in the working directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.schedulers.interface import Scheduler

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "add-a-scheduler.md").read_text()
SPOOLER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]


def dry_run(folder: Path, scheduler: str, library: Path) -> subprocess.CompletedProcess[str]:
    library.mkdir(exist_ok=True)
    (library / "spooler.py").write_text(SPOOLER)
    (folder / "site.yaml").write_text(f"scheduler: {scheduler}\nlauncher: spawn\nruns: {folder}/runs\n")
    (folder / "run.yaml").write_text("name: x\nsite: ./site.yaml\ntrain: {}\n")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{folder / 'library'}", "HOME": str(folder)}
    argv = [sys.executable, "-m", "torusrun", "submit", "run.yaml", "--dry-run"]
    return subprocess.run(argv, cwd=folder, env=env, text=True, capture_output=True, timeout=60)


def test_a_site_names_a_class_of_its_own(tmp_path: Path) -> None:
    said = dry_run(tmp_path, "spooler:Spooler", tmp_path / "library")
    assert said.returncode == 0, said.stderr
    assert "export SPOOLER_JOB=" in said.stdout and "export SUBMITIT_EXECUTOR=spooler:Spooler" in said.stdout


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        ("spooler:Nothing", "cannot be imported by"), ("pathlib:Path", "is not a subclass of"),
        ("os:sep", "is not a subclass of"), ("spooler", "there is no scheduler 'spooler'"),
    ],
)  # fmt: skip
def test_an_unusable_scheduler_class_is_refused_with_file_and_line(scheduler: str, told: str, tmp_path: Path) -> None:
    said = dry_run(tmp_path, scheduler, tmp_path / "library")
    assert said.returncode == 2 and "site.yaml:1:12: " in said.stderr and told in said.stderr, said.stderr


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    said = dry_run(tmp_path, "spooler:Spooler", tmp_path)
    assert said.returncode == 2 and "No module named 'spooler'" in said.stderr, said.stderr


class Half(Scheduler):
    """A scheduler that is not written to its end."""

    name = "half"


def test_a_class_that_is_not_whole_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(UserError, match="'tests.unit.test_own_scheduler:Half' lacks cancel_command, .*, variables$"):
        schedulers.get("tests.unit.test_own_scheduler:Half")
