"""What every unit test has: a state folder of its own; and the other side of remote runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit import far as far_side
from tests.unit.far import HERE
from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.remote import call
from torusrun.orchestrator.remote.host import LoginHost
from torusrun.orchestrator.run.folder.run_folder import RunFolder

Argv = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees what a scheduler told another."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run that is done, with its records, metrics and logs."""
    return make(write_specs(home), DONE)


def leads(monkeypatch: pytest.MonkeyPatch, argv: Argv) -> None:
    """Have each connection to a login node be a program of this machine."""
    monkeypatch.setattr(LoginHost, "argv", lambda host, command, **how: argv(command))


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home where torusrun has been installed."""
    place = tmp_path_factory.mktemp("installed")
    with pytest.MonkeyPatch.context() as patch:
        leads(patch, lambda command: far_side.argv(command, place))
        call.answer(HERE, {"do": "folder"}, str)
    return place


@pytest.fixture
def far(bare: Path, installed: Path) -> Path:
    """The home of the other side, with torusrun."""
    (bare / ".local").mkdir()
    (bare / ".local/share").symlink_to(installed / ".local/share")
    return bare


@pytest.fixture
def bare(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the other side, where nothing is installed; every connection leads there."""
    place = tmp_path / "far"
    place.mkdir()
    leads(monkeypatch, lambda command: far_side.argv(command, place))
    monkeypatch.setattr(call, "WAITS_S", (0.0,))
    return place
