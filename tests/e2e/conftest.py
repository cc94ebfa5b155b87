"""The places of the end-to-end suite, and one undisturbed run in each to compare with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaign import spec
from tests.e2e.lab_places import GridEngine, Slurm
from tests.e2e.pbs_place import PBS
from tests.e2e.places import Local, Place

# A new scheduler is tested by a line here: its place, made from pytest's fixtures.
PLACES: dict[str, Callable[[pytest.FixtureRequest], Place]] = {
    "local": lambda request: Local(request.getfixturevalue("tmp_path_factory").mktemp("local")),
    "slurm": lambda request: Slurm(request.getfixturevalue("slurm_lab")),
    "gridengine": lambda request: GridEngine(request.getfixturevalue("gridengine_lab")),
    "pbs": lambda request: _pbs(),
}


@pytest.fixture(
    scope="session", params=[pytest.param(name, marks=[] if name == "local" else pytest.mark.lab) for name in PLACES]
)
def place(request: pytest.FixtureRequest) -> Place:
    return PLACES[request.param](request)


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Local:
    return Local(tmp_path_factory.mktemp("local-only"))


@pytest.fixture(scope="session")
def undisturbed(place: Place) -> Path:
    return spec.undisturbed(place)


def _pbs() -> PBS:
    """PBS is in no package registry, so it is the only lab that CI may skip."""
    if reason := PBS.why_not_here():
        pytest.skip(reason)
    return PBS()
