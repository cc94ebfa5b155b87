"""The labs as fixtures: real schedulers, started once per test session."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .slurm import SlurmLab
from .slurm.packages import why_not_here

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("lab")


@pytest.fixture(scope="session")
def slurm_lab() -> Iterator[SlurmLab]:
    if reason := why_not_here():
        # A skipped lab proves nothing, so the machine that counts must not skip it.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with SlurmLab() as lab:
        yield lab
