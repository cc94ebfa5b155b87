"""The places of the end-to-end suite, and one undisturbed run in each to compare with."""

from pathlib import Path

import pytest

from tests.e2e.places import Local, Place, Slurm

PLACES = [pytest.param("local", id="local"), pytest.param("slurm", id="slurm", marks=pytest.mark.lab)]


@pytest.fixture(scope="session", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    if request.param == "slurm":
        return Slurm(request.getfixturevalue("slurm_lab"))
    return Local(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Local:
    return Local(tmp_path_factory.mktemp("local-only"))


@pytest.fixture(scope="session")
def undisturbed(place: Place) -> Path:
    run = place.submit()
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr
    return run
