"""Several programs in one allocation: a service that is ready when it says so, a main role that uses it, one end."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.places import Local, Place, ledger, only_on, until
from tests.e2e.test_forward import FORWARDS

SERVER = """
import http.server, os, sys, threading, time
began = time.time()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = time.time() > began + float(os.environ.get("READY_AFTER_S", 2))
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(b"42")
    def log_message(self, *words):
        pass
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "serves", flush=True)
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
# Counts to 20 in its checkpoint, with an answer of the service for each number, and waits at 10 in the first attempt.
CLIENT = """
import os, pathlib, sys, time, urllib.request
if os.environ["RANK"] == "0":
    kept = pathlib.Path(os.environ["TORUSRUN_CHECKPOINTS"], "count")
    count = int(kept.read_text()) if kept.exists() else 0
    attempt, released = os.environ["TORUSRUN_ATTEMPT"], pathlib.Path("../attempts/1/released")
    while count < 20:
        while count == 10 and attempt == "1" and not released.exists():
            time.sleep(0.1)
        count += int(urllib.request.urlopen(sys.argv[1], timeout=10).read()) // 42
        kept.with_suffix(".new").write_text(str(count))
        kept.with_suffix(".new").rename(kept)
    print("counted to", count, "with", os.environ["TORUSRUN_SERVER_HOSTS"], flush=True)
"""


def roles(place: Place, **server: object) -> str:
    """A run file: a server on a node of its own, and a main role of two ranks on each of two nodes, or all here."""
    place.run(["mkdir", "-p", "roles"])
    place.put("roles/server.py", SERVER)
    place.put("roles/client.py", CLIENT)
    nodes = 1 if isinstance(place, Local) else 2
    main = {"main": True, "nodes": nodes, "ranks_per_node": 2, "after": ["server"]}
    spec = {
        "name": "roles",
        "site": "site.yaml",
        "code": "roles",
        "time": "10m",
        "roles": {
            "server": {
                "command": ["python3", "server.py", "{server.address}", "{port}"],
                "ready": {"http": "/", "within": "60s"},
                **server,
            },
            "client": {**main, "command": ["python3", "client.py", "{server.url}"]},
        },
    }
    place.put("roles.yaml", yaml.safe_dump(spec, sort_keys=False))
    return "roles.yaml"


def submitted(place: Place, *words: str, **server: object) -> Path:
    said = place.torusrun("submit", roles(place, **server), *words)
    assert said.returncode == 0, said.stderr
    return Path(place.view(said.stdout.split()[0])["folder"])


def waits(run: Path) -> None:
    """Wait until the client holds at 10."""
    count = run / "checkpoints/count"

    def counted() -> bool:
        return count.exists() and count.read_text() == "10"

    until(lambda: counted() or ledger(run, "ended"), f"the client of {run.name} to count to 10")
    assert counted(), ledger(run, "ended")


def server_of(place: Place) -> int:
    """The server's number in the launch: after the ranks of the main role."""
    return 2 if isinstance(place, Local) else 4


def record(run: Path, rank: int, event: str) -> dict[str, Any]:
    """The record of the start or the end of a rank of the first attempt."""
    return dict(json.loads((run / f"attempts/1/ranks/{rank:04d}.{event}.json").read_text()))


def log(run: Path, rank: int, attempt: int = 1) -> str:
    return (run / f"attempts/{attempt}/logs/rank-{rank:04d}.log").read_text()


def test_the_main_role_begins_once_its_service_is_ready_and_ends_the_run(place: Place) -> None:
    run = submitted(place)
    waits(run)
    assert log(run, server_of(place)) == "rank 0 of 1 serves\n"
    state = json.loads((run / "attempts/1/roles/server.state.json").read_text())
    assert state["state"] == "ready" and state["after_s"] > 1
    place.release(run)
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr
    server = record(run, server_of(place), "end")
    assert (server["role"], server["role_rank"], server["told"], server["meaning"]) == ("server", 0, True, "done")
    client = record(run, 0, "end")
    assert client["ended_s"] < server["ended_s"]
    assert f"counted to 20 with {server['host']}" in log(run, 0)
    if not isinstance(place, Local):
        assert len({client["host"], record(run, 2, "end")["host"], server["host"]}) == 3
    until(lambda: not place.processes(run), "all processes of the run to end")


def test_a_killed_service_ends_the_attempt_and_the_next_one_continues(place: Place) -> None:
    run = submitted(place, "--set", "keep_going={attempts: 3}")
    waits(run)
    server = record(run, server_of(place), "start")
    place.kill(server["host"], server["pid"])
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr
    first, *_, last = ledger(run, "ended")
    assert first["cause"] == "killed" and "server rank 0" in first["reason"], first
    assert last["cause"] == "done"
    assert "counted to 20" in log(run, 0, last["attempt"])
    until(lambda: not place.processes(run), "all processes of the run to end")


def test_a_run_continues_on_a_spare_host_without_that_of_its_service(place: Place) -> None:
    only_on(place, "slurm")
    assert place.power_off and place.power_on
    run = submitted(place, "--set", "keep_going={attempts: 3, spares: 1}")
    waits(run)
    host = record(run, server_of(place), "start")["host"]
    try:
        place.power_off(host)
        said = place.watch(run)
    finally:
        place.power_on(host)
    assert said.returncode == 0, said.stdout + said.stderr
    first, *_, last = ledger(run, "ended")
    assert first["cause"] == "host_lost" and host in first["reason"] and last["cause"] == "done"


def test_a_service_that_may_start_again_does_so_with_its_port(place: Place) -> None:
    only_on(place, "local", "slurm")
    run = submitted(place, restart=1)
    waits(run)
    server, state = record(run, server_of(place), "start"), run / "attempts/1/roles/server.state.json"
    became_ready_s = json.loads(state.read_text())["t"]
    place.kill(server["host"], server["pid"])
    until(lambda: json.loads(state.read_text()).get("t") > became_ready_s + 1, "the server to start again")
    until(lambda: json.loads(state.read_text())["state"] == "ready", "the server to be ready again")
    place.release(run)
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr
    assert [event["cause"] for event in ledger(run, "ended")] == ["done"]
    assert log(run, server_of(place)).count("serves") == 2
    again = record(run, server_of(place), "start")
    assert again["restarts"] == 1
    assert again["started_s"] - server["started_s"] > 9.9, "a port that another has for some seconds costs one restart"


def test_a_service_that_is_never_ready_ends_the_run_and_says_why(local: Local) -> None:
    run = submitted(local, ready={"http": "/", "within": "1s"}, env={"READY_AFTER_S": "9000"})
    assert local.watch(run).returncode == 1
    (end,) = ledger(run, "ended")
    assert "server rank 0" in end["reason"] and "is not ready: / did not answer within 1 s" in end["reason"]


def test_a_stopped_run_ends_its_services_after_the_main_role(place: Place) -> None:
    run = submitted(place)
    waits(run)
    assert place.torusrun("cancel", run.name).returncode == 0
    until(lambda: place.view(run)["state"] == "CANCELLED", "the run to be cancelled")
    until(lambda: not place.processes(run), "all processes of the run to end")


def test_a_service_that_is_awaited_is_shown_and_reached(local: Local) -> None:
    ready = local.folder / "ready"
    run = submitted(local, ready={"file": str(ready), "within": "20m"}, env={"READY_AFTER_S": "0"})
    until(lambda: "server: waiting" in local.view(run)["waiting"], "`status` to name the server")
    assert local.view(run)["roles"] == {"client": "not started", "server": "waiting"}
    assert "client rank 0 has written nothing yet; server: waiting" in local.torusrun("logs", run.name).stderr
    of_server = lambda: local.torusrun("logs", run.name, "--role", "server").stdout  # noqa: E731
    until(lambda: "rank 0 of 1 serves" in of_server(), "the log of the server")
    said = local.torusrun(
        "shell", run.name, "--role", "server", "--", "printenv", "TORUSRUN_ROLE", "TORUSRUN_SERVER_PORT"
    )
    port = json.loads((run / "attempts/1/roles/server.json").read_text())["port"]
    assert said.stdout.split() == ["server", str(port)], said.stderr
    words = ["python", "-m", "torusrun", "forward", run.name, "server", "--listen", "0"]
    forward, out = local.start(["sh", "-c", FORWARDS, "sh", *words]), local.folder / "forward.out"
    ready.touch()
    waits(run)
    until(lambda: out.exists() and out.read_text().strip(), "the address of the forward")
    local.release(run)
    assert local.watch(run).returncode == 0
    assert forward.wait(60) == 0, "it ends with the attempt"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_first_of_two_roles_that_fail_is_the_cause(local: Local, number: int) -> None:
    run = submitted(local)
    waits(run)
    client = record(run, 0, "start")
    local.signal(client["host"], client["pid"], number)
    assert local.watch(run).returncode == 1
    (end,) = ledger(run, "ended")
    assert "client rank 0" in end["reason"]


@pytest.mark.parametrize(("then", "code"), [("until test -e over; do sleep 0.1; done", 0), ("exec sleep 600", 1)])
def test_a_main_role_may_end_its_services_itself_before_its_own_end(local: Local, then: str, code: int) -> None:
    server = "until test -e quits; do sleep 0.1; done; touch over"
    main = {"main": True, "ranks_per_node": 1, "command": ["sh", "-c", f"touch quits; {then}"]}
    spec = {"name": "quits", "site": "site.yaml", "code": "none"}
    local.put("quits.yaml", json.dumps({**spec, "roles": {"server": {"command": ["sh", "-c", server]}, "main": main}}))
    said = local.torusrun("submit", "quits.yaml", "--wait")
    assert said.returncode == code, said.stdout + said.stderr
    assert ("server rank 0" in said.stdout + said.stderr) == (code != 0)
