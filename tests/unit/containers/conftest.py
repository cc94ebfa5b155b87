"""Fixtures for containers: a runtime that is none, and recipes as small as they can be."""

import sys
from pathlib import Path

import pytest

from orchestrator.containers.runtime import Runtime

SMALL = "name: small\nbase: {debootstrap: bookworm}\n"


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(str(fake(tmp_path)), "apptainer", (1, 4, 5))


def fake(folder: Path) -> Path:
    command = folder / "apptainer"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {Path(__file__).with_name("fake_runtime.py")} "$@"\n')
    command.chmod(0o755)
    return command


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
