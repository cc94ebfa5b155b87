"""Fixtures for all tests: a home of one's own, and the lab, which is started once per session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.slurm import SlurmLab
from tests.lab.slurm.packages import why_not_here


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No run, site or index of the developer's is read or written."""
    folder = tmp_path / "home"
    folder.mkdir()
    for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[SlurmLab]:
    if reason := why_not_here():
        # A skipped lab proves nothing, so the machine that counts must not skip it.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with SlurmLab() as lab:
        yield lab
