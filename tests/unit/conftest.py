"""What every unit test has: a state folder of its own; and the other side of remote runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.far import HERE, Pipe
from torusrun.orchestrator.remote import session
from torusrun.orchestrator.remote.session import Session


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees what a scheduler told another."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home where torusrun has been installed."""
    place = tmp_path_factory.mktemp("installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "connect", lambda host, command, **how: Pipe(command, place))
        Session(HERE, 0).close()
    return place


@pytest.fixture
def far(bare: Path, installed: Path) -> Path:
    """The home of the other side, with torusrun."""
    (bare / ".local").mkdir()
    (bare / ".local/share").symlink_to(installed / ".local/share")
    return bare


@pytest.fixture
def bare(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of the other side, where nothing is installed; `session.connect` leads there."""
    place = tmp_path / "far"
    place.mkdir()
    monkeypatch.setattr(session, "connect", lambda host, command, **how: Pipe(command, place))
    monkeypatch.setattr(session, "WAITS_S", (0.0,))
    yield place
