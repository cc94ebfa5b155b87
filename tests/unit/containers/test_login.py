"""The login node with the site's modules: a real shell loads them, in a time limit, and tells its environment."""

from pathlib import Path

import pytest

from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.keys.site import ContainerSettings, Site
from torusrun.orchestrator.run.image.login import login

# What environment-modules and Lmod give a shell: a function that changes its variables.
MODULE = """module() {
  echo "Loading $*" >&2
  echo "some modules greet on standard output"
  case "$*" in
    purge) unset LOADED ;;
    "load apptainer/1.4") export PATH=%s:$PATH LOADED="$1 with
two lines" ;;
    *) echo "ERROR: Unable to locate a modulefile for '$2'" >&2; return 1 ;;
  esac
}
export -f module
"""


def site(*modules: str, runtime: str | None = None, env: dict[str, str] | None = None, purge: bool = False) -> Site:
    return Site(
        "slurm",
        "srun",
        software=Software(purge, modules=modules),
        env=env or {},
        container=ContainerSettings(runtime=runtime),
    )


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which a shell has modules, and one of them has a runtime that answers its version."""
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho apptainer version 1.4.5\n")
    program.chmod(0o755)
    start = tmp_path / "start.sh"
    start.write_text(MODULE % program.parent)
    monkeypatch.setenv("BASH_ENV", str(start))  # how sites give modules to shells that are not interactive
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return program


def test_a_runtime_that_comes_with_a_module_is_found(installed: Path) -> None:
    here = login(site("apptainer/1.4", env={"FOO": "bar"}, purge=True))
    assert str(here.runtime) == "apptainer 1.4.5" and here.runtime and here.runtime.command == str(installed)
    assert here.environment["LOADED"] == "load with\ntwo lines" and here.environment["FOO"] == "bar"
    assert not here.modules_failed and "after `module purge; module load apptainer/1.4`" in here.asked


def test_a_missing_module_is_reported_and_nothing_is_lost(installed: Path) -> None:
    here = login(site("apptainer/9; touch pwned"))
    assert here.runtime is None and "not found" in here.asked and here.environment["PATH"] == "/usr/bin:/bin"
    assert "Unable to locate a modulefile for 'apptainer/9; touch pwned'" in here.modules_failed
    assert not Path("pwned").exists()


def test_a_machine_without_modules_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("BASH_ENV", raising=False)
    here = login(site("torusrun-no-such-module"))
    assert here.modules_failed and here.runtime is None


def test_a_site_without_modules_needs_no_shell(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASH_ENV", "/dev/null")
    here = login(site(runtime=str(installed)))
    assert str(here.runtime) == "apptainer 1.4.5" and not here.modules_failed
    assert login(site(runtime="torusrun-no-such-runtime")).runtime is None
