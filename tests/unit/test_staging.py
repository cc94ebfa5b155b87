"""Staging over several hosts: processes with folders of their own, on real sockets of the loopback interface."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SECRET = "5a" * 32
LARGE = os.urandom(3 << 20)  # several blocks


class Cluster:
    """Hosts that stage the same sources, each into a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = path, path / "shared" / "data"
        self.started: list[subprocess.Popen[str]] = []
        (self.source / "sub").mkdir(parents=True)
        (self.source / "large").write_bytes(LARGE)
        (self.source / "sub" / "small").write_text("small")
        (self.source / "sub" / "link").symlink_to("small")

    def attempt(self, run: str, number: int = 1) -> Path:
        return self.path / "runs" / run / "attempts" / str(number)

    def node(self, host: str) -> Path:
        return self.path / host / f"torusrun-{os.geteuid()}"

    def copies(self, host: str) -> list[str]:
        """All that a host keeps under a final name."""
        return sorted(path.name for path in self.node(host).glob("[0-9a-f]*") if path.suffix != ".json")

    def start(self, number: int, hosts: list[str], *, run: str = "r", attempt: int = 1, **more: Any) -> Any:
        folder = self.attempt(run, attempt)
        (folder / "ranks").mkdir(parents=True, exist_ok=True)
        # Only the first host looks at the shared disk: for the others the source does not exist.
        entries = [{"name": "data", "path": str(self.source if number == 0 else "/nowhere/data")}]
        given = {
            "folder": str(self.path / hosts[number]), "attempt": str(folder), "number": number, "hosts": hosts,
            "entries": entries, "secret": SECRET, "run": run, **more,
        }  # fmt: skip
        words = [sys.executable, "-m", "tests.unit.staging_host", json.dumps(given)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.started.append(process)
        return process

    def stage(self, hosts: list[str], **more: Any) -> list[dict[str, Any]]:
        """What each host says once it has its copies; then all have ended."""
        began = [self.start(number, hosts, **more) for number in range(len(hosts))]
        said = [heard(process) for process in began]
        for process in began:
            process.communicate()
        return said

    def record(self, run: str = "r", attempt: int = 1) -> dict[str, Any]:
        return json.loads((self.attempt(run, attempt) / "ranks/staged.json").read_text())  # type: ignore[no-any-return]

    def at_the_gate(self, host: str) -> None:
        """Wait until the first block of a copy has come to a host."""
        until(lambda: any(path.stat().st_size for path in self.node(host).glob(".*/copy/large")), f"a block on {host}")


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout
    return json.loads(process.stdout.readline())  # type: ignore[no-any-return]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


HOSTS = ["n0", "n1", "n2"]


def test_every_host_gets_the_same_bits_and_one_reads_the_shared_disk(cluster: Cluster) -> None:
    for host, said in zip(HOSTS, cluster.stage(HOSTS), strict=True):
        (copy,) = {*said["copies"].values()}
        assert Path(copy).parent == cluster.node(host)
        assert (Path(copy) / "large").read_bytes() == LARGE and (Path(copy) / "sub/link").read_text() == "small"
        assert (cluster.node(host) / "run-r" / "data" / "sub" / "small").read_text() == "small"
        for name in (".", "large", "sub"):
            assert (copy / Path(name)).stat().st_mtime_ns == (cluster.source / name).stat().st_mtime_ns
    record = cluster.record()
    assert list(record["done"]) == HOSTS and record["written_bytes"] == record["to_write_bytes"] > 3 * len(LARGE)
    assert len({str(done["sha256"]) for done in record["done"].values()}) == 1


def test_the_next_attempt_finds_the_copies_and_a_host_without_one_gets_it_from_the_host_above(cluster: Cluster) -> None:
    cluster.stage(HOSTS)
    inode = [(cluster.node(host) / cluster.copies(host)[0]).stat().st_ino for host in HOSTS]
    hosts = ["n0", "n1", "new"]
    cluster.stage(hosts, attempt=2)
    assert [cluster.record(attempt=2)["done"][host]["bytes"] > 0 for host in hosts] == [False, False, True]
    assert [(cluster.node(host) / cluster.copies(host)[0]).stat().st_ino for host in HOSTS] == inode
    assert (cluster.node("new") / cluster.copies("new")[0] / "large").read_bytes() == LARGE


def test_a_changed_source_is_another_copy(cluster: Cluster) -> None:
    cluster.stage(["n0"])
    (cluster.source / "sub" / "small").write_text("SMALL")
    cluster.stage(["n0"], attempt=2)
    assert len(cluster.copies("n0")) == 2 and (cluster.node("n0") / "run-r/data/sub/small").read_text() == "SMALL"


def test_a_killed_host_ends_the_others_and_leaves_no_half_copy(cluster: Cluster, tmp_path: Path) -> None:
    began = [cluster.start(number, HOSTS, gate=str(tmp_path / "gate")) for number in range(3)]
    cluster.at_the_gate("n2")
    began[1].kill()
    began[1].wait()  # before that, the first host can still send it all that is left, and have a whole copy
    (tmp_path / "gate").touch()
    said = [heard(began[0]), heard(began[2])]
    assert [each["kind"] for each in said] == ["CutOffError"] * 2 and "n1" in said[0]["error"] + said[1]["error"]
    assert [cluster.copies(host) for host in HOSTS] == [[], [], []]
    (killed,) = cluster.node("n1").glob(".*/copy")
    cluster.stage(HOSTS, attempt=2)
    assert not killed.exists() and cluster.copies("n0") == cluster.copies("n1") == cluster.copies("n2") != []


def test_a_request_to_stop_ends_it_at_once(cluster: Cluster, tmp_path: Path) -> None:
    began = [cluster.start(number, HOSTS, gate=str(tmp_path / "never")) for number in range(3)]
    cluster.at_the_gate("n2")
    for process in began:
        process.send_signal(signal.SIGTERM)
    said = [heard(process)["kind"] for process in began]
    assert said[0] == "StoppedBeforeStart" and {*said} <= {"StoppedBeforeStart", "CutOffError"}
    assert [[*cluster.node(host).glob("[0-9a-f.]*")] for host in HOSTS] == [[], [], []]


def test_a_full_disk_names_its_host_on_all(cluster: Cluster) -> None:
    began = [cluster.start(number, HOSTS, spare=(1 << 60) * (number == 1)) for number in range(3)]
    said = [heard(process) for process in began]
    assert [each["kind"] for each in said] == ["CutOffError", "SiteError", "CutOffError"]
    assert all("n1/torusrun-" in each["error"] and "GB free" in each["error"] for each in said), said
    assert [cluster.copies(host) for host in HOSTS] == [[], [], []]


def test_who_does_not_know_the_secret_is_no_host(cluster: Cluster) -> None:
    """A stranger who calls the first host gets nothing, and delays nobody."""
    first = cluster.start(0, HOSTS[:2])
    place = cluster.attempt("r") / "ranks/0000.stage.json"
    where = until(lambda: place.exists() and json.loads(place.read_text()), "the first host")
    assert place.stat().st_mode & 0o77 == 0
    with socket.create_connection((where["address"], where["port"])) as stranger:
        stranger.sendall(b"x" * 64)
        assert len(stranger.recv(1 << 20)) <= 32, "only the random bytes of the proof"
        second = cluster.start(1, HOSTS[:2])
        assert "copies" in heard(second) and "copies" in heard(first)
    other = cluster.start(1, HOSTS[:2], run="other", secret="00" * 32)
    held = cluster.start(0, HOSTS[:2], run="other")
    until(lambda: other.poll() is None and (cluster.attempt("other") / "ranks/0000.stage.json").exists(), "both")
    assert held.poll() is None and cluster.copies("n1") != []


def test_a_changed_stream_writes_no_copy(cluster: Cluster) -> None:
    """Somebody between two hosts changes one bit of what is sent."""
    first = cluster.start(0, HOSTS[:2])
    place = cluster.attempt("r") / "ranks/0000.stage.json"
    where = until(lambda: place.exists() and json.loads(place.read_text()), "the first host")
    between = socket.create_server(("127.0.0.1", 0))
    place.write_text(json.dumps({**where, "port": between.getsockname()[1]}))
    second = cluster.start(1, HOSTS[:2])
    down = socket.create_connection((where["address"], where["port"]))
    up, _ = between.accept()
    threading.Thread(target=relayed, args=(up, down, 1 << 60), daemon=True).start()
    relayed(down, up, 1 << 20)
    assert "forged" in heard(second)["error"] and heard(first)["kind"] == "CutOffError"
    assert cluster.copies("n1") == []
    down.close(), up.close(), between.close()


def relayed(come: socket.socket, go: socket.socket, wrong: int) -> None:
    """Pass on what comes, with a bit of byte number `wrong` changed."""
    passed = 0
    try:
        while piece := bytearray(come.recv(1 << 16)):
            if passed <= wrong < passed + len(piece):
                piece[wrong - passed] ^= 1
            go.sendall(piece)
            passed += len(piece)
    except OSError:
        pass


def test_two_runs_on_a_node_share_one_copy(cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.start(0, ["n0"], run="a", gate=str(tmp_path / "gate"))
    cluster.at_the_gate("n0")
    second = cluster.start(0, ["n0"], run="b")
    (tmp_path / "gate").touch()
    assert heard(first)["copies"] == heard(second)["copies"]
    assert cluster.record("b")["done"]["n0"]["bytes"] == 0 < cluster.record("a")["done"]["n0"]["bytes"]


def test_two_runs_over_the_same_hosts_never_wait_for_one_another(cluster: Cluster, tmp_path: Path) -> None:
    """In opposite orders, each would have what the other waits for."""
    gate = str(tmp_path / "gate")
    began = [cluster.start(number, ["n0", "n1"], run="a", gate=gate) for number in (0, 1)]
    cluster.at_the_gate("n1")
    began += [cluster.start(number, ["n1", "n0"], run="b") for number in (0, 1)]
    assert all("copies" in heard(process) for process in began[2:])
    (tmp_path / "gate").touch()
    assert all("copies" in heard(process) for process in began[:2])
    assert len(cluster.copies("n0")) == len(cluster.copies("n1")) == 1
