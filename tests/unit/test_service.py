"""The checks of a service: when it is ready, what is reported when it is silent, and when it is told to stop."""

from __future__ import annotations

import http.server
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.job.ranks import service as module
from torusrun.orchestrator.job.ranks.roles import is_ready
from torusrun.orchestrator.job.ranks.service import Service
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank, RoleOrder
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import Placement, Slot
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.program.what_runs import Program, ReadyCheck

STATUS = {"/health": 200, "/made": 201, "/moved": 302, "/broken": 500}


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(STATUS.get(self.path, 404))
        self.send_header("Location", "/health")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value_s in {"EVERY_S": 0.02, "READY_EVERY_S": 0.02, "SILENT_S": 0.1, "LOST_S": 0.3}.items():
        monkeypatch.setattr(module, name, value_s)


def made(folder: Path, port: int, ready: ReadyCheck, number: int = 1, **role: object) -> Service:
    """The service of one rank of a role `server` beside a main role of one rank, in an attempt below `folder`."""
    attempt = Attempt(folder / "1")
    attempt.roles.mkdir(parents=True)
    (folder / "code").mkdir()
    server = RoleOrder(Program(("serve",), directory=str(folder / "code")), name="server", service=True, ready=ready)
    server = RoleOrder(**{**vars(server), **role})  # type: ignore[arg-type]
    order = LaunchOrder("x", (RoleOrder(Program(("main",)), name="main"), server), ("R", "L"), (), (), None, 30.0, 0o77)
    slots = (Slot(0, "h", 0, (0,), "main"), Slot(1, "h", 1, (), "server"), Slot(2, "h", 2, (), "server"))
    rank = Rank(number, attempt, order, Placement(Grid((1,)), slots))
    return Service(rank, ("127.0.0.1", port), folder / "log")


def state(service: Service) -> dict[str, object]:
    return read_object(service.rank.attempt.role_state("server")) or {}


def test_a_service_that_starts_again_is_not_ready_meanwhile(tmp_path: Path, port: int) -> None:
    service = made(tmp_path, port, ReadyCheck("tcp", within_s=1000.0))
    service.begin()
    until(lambda: is_ready(service.rank.attempt, "server"), "its port")
    service.end()
    service.starts_again(10.0)
    assert not is_ready(service.rank.attempt, "server"), "whatever has the port now"
    assert (state(service)["state"], state(service)["within_s"]) == ("waiting", 1010.0)
    shutil.rmtree(service.rank.attempt.roles)
    service.starts_again(10.0)  # what cannot be recorded ends no program


@pytest.mark.parametrize(
    ("check", "ready"),
    [
        (ReadyCheck(), True),
        (ReadyCheck("http", "/health"), True),
        (ReadyCheck("http", "/made"), True),
        (ReadyCheck("http", "/moved"), False),
        (ReadyCheck("http", "/broken"), False),
        (ReadyCheck("tcp"), True),
        (ReadyCheck("file", "there"), True),
        (ReadyCheck("file", "not there"), False),
        (ReadyCheck("log", "^up on .*1$"), True),
        (ReadyCheck("log", "half a line"), False),
    ],
)
def test_a_service_is_ready_by_its_own_check_alone(tmp_path: Path, port: int, check: ReadyCheck, ready: bool) -> None:
    service = made(tmp_path, port, ReadyCheck(check.kind, check.value, within_s=1000.0 if ready else 0.1))
    (tmp_path / "code/there").touch()
    (tmp_path / "log").write_text("begins\nup on port 1\nhalf a line")
    service.begin()
    if ready:
        until(lambda: is_ready(service.rank.attempt, "server"), "the service to be ready")
        assert not service.failed
    else:
        until(lambda: service.failed, "the service to be late")
        assert service.failed == f"is not ready: {check.words} did not answer within 0.1 s"
        assert state(service)["state"] == "late" and not is_ready(service.rank.attempt, "server")
    service.end()


def test_a_service_that_waits_says_for_what_and_how_long(tmp_path: Path, port: int) -> None:
    service = made(tmp_path, port, ReadyCheck("http", "/broken", within_s=1200.0))
    service.begin()
    until(lambda: state(service), "the service to say that it waits")
    assert {name: state(service)[name] for name in ("state", "check", "within_s")} == {
        "state": "waiting", "check": "/broken", "within_s": 1200.0,
    }  # fmt: skip
    service.end()


@pytest.mark.parametrize("alive", [True, False])
def test_a_service_that_is_silent_is_reported_and_given_up_only_if_it_has_to_stay_alive(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    service = made(tmp_path, port, ReadyCheck("http", "/health"), alive=alive)
    service.begin()
    until(lambda: is_ready(service.rank.attempt, "server"), "the service to be ready")
    monkeypatch.setitem(STATUS, "/health", 500)
    until(lambda: state(service)["state"] == "silent", "the service to be silent")
    assert is_ready(service.rank.attempt, "server"), "it was ready: other roles may start"
    if alive:
        until(lambda: service.failed, "the service to be given up")
        assert service.failed == "was ready, and /health has not answered for 0.3 s"
        return
    monkeypatch.setitem(STATUS, "/health", 200)
    until(lambda: state(service)["state"] == "ready", "the service to answer again")
    assert not service.failed
    service.end()


def test_a_port_that_takes_connections_and_says_nothing_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        service = made(tmp_path, mute.getsockname()[1], ReadyCheck("http", "/", within_s=0.1))
        service.begin()
        until(lambda: service.failed, "the service to be late")


def test_only_the_first_rank_checks_and_every_rank_stops_once_its_role_is_over(tmp_path: Path, port: int) -> None:
    service = made(tmp_path, port, ReadyCheck(), number=2)
    service.begin()
    time.sleep(0.05)
    assert not state(service)
    write_json(service.rank.attempt.roles_over, {"roles": ["judge"]})
    assert not service.told(10.0)
    write_json(service.rank.attempt.roles_over, {"roles": ["judge", "server"]})
    assert not service.told(10.01), "it looks again after a while"
    assert service.told(20.0)
