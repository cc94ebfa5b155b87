"""Fixtures for containers: an image file as small as it can be."""

from pathlib import Path

import pytest

SMALL = "name: small\nbase: {docker: debian}\n"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
