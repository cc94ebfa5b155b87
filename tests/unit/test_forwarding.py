"""Local ports that lead to a port beside a rank: both real ends, between real sockets of this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.waiting import until
from torusrun.orchestrator.base import listening, proc
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.beside import leading
from torusrun.orchestrator.beside.leading import BEGIN
from torusrun.orchestrator.beside.shells.addresses import addresses

LIMIT_S = 240.0
OPEN = """
import os, sys
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.listening import Listening
from torusrun.orchestrator.beside.forward import carry
over, port, at = sys.argv[1:]
argv = process.module(sys.executable, "torusrun.orchestrator.beside.leading", port)
try:
    listening = Listening(int(port), at, here=True)
    listening.announce(f"port {port} of here")
    listening.serve(lambda link: carry(link, lambda streams: process.join(argv, streams)), lambda: os.path.exists(over))
except TorusrunError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
except KeyboardInterrupt:
    sys.exit(130)
"""
RESET = struct.pack("ii", 1, 0)


class Forward:
    """A forward to `port`, as its user starts it, until there is a file `over`. `address` is where it listens."""

    def __init__(self, folder: Path, port: int, at: str = "") -> None:
        self.over, self._errors = folder / "over", folder / "errors"
        with self._errors.open("w") as errors:
            argv = [sys.executable, "-c", OPEN, str(self.over), str(port), at]
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout
        address, _, listens = self.process.stdout.readline().strip().partition(":")
        self.address = address, int(listens or 0)

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()

    @property
    def said(self) -> str:
        return self._errors.read_text()

    def connected(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=LIMIT_S)


class Server(socketserver.ThreadingTCPServer):
    """A server on a free port, which does `act` with each connection."""

    daemon_threads, request_queue_size = True, 300

    def __init__(self, act: Callable[[socket.socket], None], address: str = "127.0.0.1") -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                act(self.request)

        super().__init__((address, 0), Handler)
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def __exit__(self, *raised: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


def echoed(link: socket.socket) -> None:
    while data := link.recv(1 << 16):
        link.sendall(data)


def all_of(link: socket.socket) -> bytes:
    """What comes from a connection until its end."""
    return b"".join(iter(lambda: link.recv(1 << 16), b""))


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forward]:
    with Server(echoed) as server, Forward(tmp_path_factory.mktemp("attempt"), server.port) as forward:
        yield forward


def ends() -> tuple[leading.Pieces, leading.Pieces, Streams]:
    """Both ends of the pieces of a connection, and the descriptors of the second one."""
    (their_input, output), (input_, their_output) = os.pipe(), os.pipe()
    theirs = Streams(their_input, their_output)
    return leading.Pieces(Streams(input_, output)), leading.Pieces(theirs), theirs


@given(st.lists(st.binary(max_size=40), max_size=6), st.binary(max_size=60))
def test_pieces_arrive_as_they_were_sent(sent: list[bytes], noise: bytes) -> None:
    user, there, streams = ends()
    os.write(streams.output, noise.replace(BEGIN, b""))
    there.begin()
    user.begun()
    for piece in sent:
        there.sendall(piece)
    assert [user.recv(100) for _ in sent] == sent
    os.write(streams.output, struct.pack("!I", 101))
    with pytest.raises(OSError, match="a piece of 101 bytes"):
        user.recv(100)
    for end in (user, there):
        end.close()


def test_no_end_of_what_a_shell_prints_is_waited_for() -> None:
    user, there, streams = ends()
    os.set_blocking(streams.output, True)

    def print_much() -> None:
        with contextlib.suppress(OSError):
            while True:
                os.write(streams.output, b"noise" * 1000)

    writer = threading.Thread(target=print_much)
    writer.start()
    with pytest.raises(SiteError, match=r"printed b'noise.* and did not start the forward"):
        user.begun()
    user.close()
    writer.join()
    there.close()


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100_000), st.binary(min_size=1, max_size=4)), max_size=20))
def test_connections_carry_their_own_bytes_in_order_at_the_same_time(
    echo: Forward, sends: list[tuple[int, int, bytes]]
) -> None:
    with contextlib.ExitStack() as opened:
        links = {number: opened.enter_context(echo.connected()) for number, _, _ in sends}
        for number, times, piece in sends:
            links[number].sendall(piece * times)
        for number, link in links.items():
            link.shutdown(socket.SHUT_WR)
            assert all_of(link) == b"".join(piece * times for of, times, piece in sends if of == number)


def test_many_connections_at_once_and_more_than_there_is_room_for(echo: Forward) -> None:
    with contextlib.ExitStack() as opened:
        links = [opened.enter_context(echo.connected()) for _ in range(80)]
        for number, link in enumerate(links):
            link.sendall(b"%d" % number)
            link.shutdown(socket.SHUT_WR)
        for number, link in enumerate(links):
            assert all_of(link) == b"%d" % number
            link.close()


def test_a_client_that_does_not_read_delays_only_its_server(tmp_path: Path) -> None:
    piece, sent = os.urandom(1 << 20), []

    def act(link: socket.socket) -> None:
        if link.recv(1) == b"e":
            return echoed(link)
        for _ in range(96):
            link.sendall(piece)
            sent.append(piece)
        return None

    with (
        Server(act) as server,
        Forward(tmp_path, server.port) as forward,
        forward.connected() as slow,
        forward.connected() as quick,
    ):
        slow.sendall(b"m")
        quick.sendall(b"e")
        for _ in range(20):
            quick.sendall(piece)
            with quick.makefile("rb") as file:
                assert file.read(len(piece)) == piece
        assert len(sent) < 64, "so much is stored for a client that does not read"
        assert hashlib.sha256(all_of(slow)).digest() == hashlib.sha256(piece * 96).digest()


def test_each_side_may_stop_to_send_before_the_other(tmp_path: Path) -> None:
    def act(link: socket.socket) -> None:
        link.sendall(b"all I have")
        link.shutdown(socket.SHUT_WR)
        heard.append(all_of(link))
        over.set()

    heard, over = list[bytes](), threading.Event()
    with Server(act) as server, Forward(tmp_path, server.port) as forward, forward.connected() as link:
        assert all_of(link) == b"all I have"
        link.sendall(b"and I continue")
        link.shutdown(socket.SHUT_WR)
        assert over.wait(LIMIT_S) and heard == [b"and I continue"]


def test_a_client_that_is_gone_is_gone_for_the_server_and_a_server_for_the_client(tmp_path: Path) -> None:
    def act(link: socket.socket) -> None:
        if link.recv(1) == b"s":
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return link.close()
        try:
            while True:
                link.sendall(bytes(1 << 16))
        except OSError:
            return gone.set()

    gone = threading.Event()
    with Server(act) as server, Forward(tmp_path, server.port) as forward:
        with forward.connected() as link:
            link.sendall(b"c")
            link.recv(1)
        assert gone.wait(LIMIT_S), "the server must learn that its client is gone"
        with forward.connected() as link, pytest.raises(ConnectionResetError):
            link.sendall(b"s")
            all_of(link)


def bound(server: socket.socket) -> int:
    """The port of a socket that does not listen yet: nobody else can take it meanwhile."""
    server.bind(("127.0.0.1", 0))
    return int(server.getsockname()[1])


def test_a_port_without_a_server_is_reported_once_and_works_as_soon_as_one_starts(tmp_path: Path) -> None:
    with socket.socket() as server, Forward(tmp_path, port := bound(server)) as forward:
        for _ in range(3):
            with forward.connected() as link, contextlib.suppress(ConnectionResetError):
                assert link.recv(1) == b""
        why = f"a connection was closed: nothing answers on port {port} of {socket.gethostname()}"
        assert [line for line in forward.said.splitlines() if why in line] == [f"torusrun: {why}"]
        server.listen()
        with forward.connected() as link:
            server.accept()[0].close()
            assert all_of(link) == b""


@pytest.mark.parametrize("address", ["::1", "own"])
def test_a_server_on_another_address_of_the_host_is_found(address: str, tmp_path: Path) -> None:
    own = next(iter(addresses()), "") if address == "own" else address
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    try:
        server = socket.create_server((own, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {address} address")
    with server, Forward(tmp_path, server.getsockname()[1]) as forward, forward.connected() as link:
        server.accept()[0].close()
        assert all_of(link) == b""


def test_a_local_port_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Forward(tmp_path, 1, at=str(port)) as forward:
            assert forward.process.wait(LIMIT_S) == 2
            assert forward.said == (
                f"--listen 127.0.0.1:{port}: Address already in use; name another port of this "
                f"machine, or leave out --listen\n"
            )
        with Forward(tmp_path, port, at=str(port)) as forward:
            assert forward.process.wait(LIMIT_S) == 2
            assert "the run uses this port of this machine" in forward.said


@pytest.mark.parametrize(("number", "code"), [(None, 0), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_the_programs_beside_the_rank_end_with_the_forward(
    number: signal.Signals | None, code: int, echo: Forward, tmp_path: Path
) -> None:
    with Forward(tmp_path, echo.address[1]) as forward, forward.connected() as link:
        link.sendall(b"x")
        assert link.recv(1) == b"x"
        (there,) = proc.children(forward.process.pid)
        if number:
            forward.process.send_signal(number)
        else:
            forward.over.touch()
        assert forward.process.wait(LIMIT_S) == code
        until(lambda: not Path(f"/proc/{there}").exists(), "the program to end")


def test_a_client_learns_that_its_program_is_gone(echo: Forward, tmp_path: Path) -> None:
    with Forward(tmp_path, echo.address[1]) as forward:
        with forward.connected() as link:
            link.sendall(b"x")
            assert link.recv(1) == b"x"
            (there,) = proc.children(forward.process.pid)
            os.kill(there, signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):
                assert all_of(link) == b""
        with forward.connected() as link:
            link.sendall(b"y")
            assert link.recv(1) == b"y", "others are not concerned"


def test_a_client_of_another_user_is_strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own list of connections, with another user's number in each line."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as link,
    ):
        assert client.fileno() >= 0 and not listening.is_strange(link)
        table = tmp_path / "tcp"
        monkeypatch.setattr(listening, "TABLES", (table,))
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        table.write_text("\n".join(" ".join([*words[:7], "54321", *words[8:]]) for words in lines))
        assert listening.is_strange(link)
        table.write_text(" ".join(lines[0]))
        assert listening.is_strange(link), "a client on loopback that is not in the list is gone"
        table.unlink()
        assert not listening.is_strange(link), "a system without the list"


@pytest.mark.needs("users")
def test_another_user_of_this_machine_cannot_use_the_port(echo: Forward) -> None:
    knocks = (
        "import socket, sys; link = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "try: link.sendall(b'x'); print(link.recv(1))\nexcept OSError: print(b'')"
    )
    argv = ["/usr/bin/setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/env", "python3", "-c", knocks]
    said = subprocess.run([*argv, str(echo.address[1])], capture_output=True, text=True, timeout=LIMIT_S, cwd="/")
    assert said.stdout == "b''\n", said.stderr
    assert "its client belongs to another user, or has ended" in echo.said
