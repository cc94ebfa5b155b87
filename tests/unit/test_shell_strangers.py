"""Strangers on the nodes and on the login node, who relay, change and hold up what belongs to a shell."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_shell import OPEN
from tests.waiting import until
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.beside.shells import addresses, program
from torusrun.orchestrator.job import shell_requests
from torusrun.orchestrator.job.connection import (
    CALLED,
    CALLING,
    HEAD,
    MAC_BYTES,
    MOST_LINKS,
    NONCE_BYTES,
    Broken,
    Connection,
    Frame,
    Proofs,
)
from torusrun.orchestrator.job.shell_requests import ShellRequest

LIMIT_S = 250.0
KEYS = {"sends": b"s" * 32, "receives": b"r" * 32}
SENT = st.lists(st.tuples(st.sampled_from(Frame), st.binary(max_size=40)), min_size=1, max_size=6)
Change = Callable[[bytes], bytes]


def written(frames: list[tuple[Frame, bytes]]) -> list[bytes]:
    """The frames as they travel."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        connection, found = Connection(mine, **KEYS), []
        for kind, content in frames:
            connection.send(kind, content)
            found.append(theirs.recv(4096))
    return found


def read(stream: bytes, *, sends: bytes, receives: bytes) -> tuple[list[tuple[Frame, bytes]], str]:
    """The frames that the other side believes of `stream`, and why it believes no more."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(stream)
        theirs.shutdown(socket.SHUT_WR)
        connection, believed = Connection(mine, sends=sends, receives=receives), []
        while True:
            try:
                believed.append(connection.receive())
            except Broken as error:
                return believed, str(error)


def other_side(stream: bytes) -> tuple[list[tuple[Frame, bytes]], str]:
    return read(stream, sends=KEYS["receives"], receives=KEYS["sends"])


@given(SENT)
def test_frames_arrive_as_they_were_sent(frames: list[tuple[Frame, bytes]]) -> None:
    assert other_side(b"".join(written(frames))) == (frames, "the connection was closed too early")


@given(SENT, st.data())
def test_nothing_that_a_stranger_makes_of_frames_is_believed(
    frames: list[tuple[Frame, bytes]], data: st.DataObject
) -> None:
    pieces = written(frames)
    at = data.draw(st.integers(0, len(pieces) - 1))
    piece, byte = pieces[at], data.draw(st.integers(0, len(pieces[at]) - 1))
    changed = piece[:byte] + bytes([piece[byte] ^ data.draw(st.integers(1, 255))]) + piece[byte + 1 :]
    made = HEAD.pack(b"i", 4) + b"evil" + data.draw(st.binary(min_size=MAC_BYTES, max_size=MAC_BYTES))
    in_place = {
        "changed": [changed], "made": [made, piece], "repeated": [piece, piece], "truncated": [piece[:byte]],
        "left out": [], "in another order": [*pieces[at + 1 : at + 2], piece],
    }  # fmt: skip
    how = data.draw(st.sampled_from(sorted(in_place)))
    rest = [] if how == "truncated" else pieces[at + 2 if how == "in another order" else at + 1 :]
    believed, why = other_side(b"".join([*pieces[:at], *in_place[how], *rest]))
    assert believed == frames[: len(believed)] and len(believed) <= len(frames)
    assert why.startswith(("a message was forged", "the connection was closed")) and "\n" not in why


@given(SENT)
def test_frames_that_are_sent_back_are_not_believed(frames: list[tuple[Frame, bytes]]) -> None:
    believed, why = read(b"".join(written(frames)), **KEYS)
    assert believed == [] and why.startswith("a message was forged")


class Relay:
    """A stranger between the two sides. The proof passes it unchanged, and what follows passes `changes`."""

    def __init__(self, folder: Path, to_program: Change, to_user: Change) -> None:
        self._listener = socket.create_server(("", 0))
        self._changes = to_program, to_user
        self._requests, self._own = folder / "shells", folder / "relayed"
        for made in (self._requests, self._own):
            made.mkdir()
        self.program: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        """Start the program of the first request, with the port of the relay."""
        asked = shell_requests.read(first_request(self._requests))
        path = replace(asked, port=self._listener.getsockname()[1]).write(self._own)
        self.program = subprocess.Popen(
            [sys.executable, "-m", "torusrun.orchestrator.beside.shells.program", str(path)]
        )
        caller, _ = self._listener.accept()
        called = socket.create_connection(("127.0.0.1", asked.port))
        ways = [(called, caller, self._changes[0]), (caller, called, self._changes[1])]
        threads = [threading.Thread(target=self._carry, args=way) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        caller.close()
        called.close()

    def _carry(self, source: socket.socket, sink: socket.socket, change: Change) -> None:
        with contextlib.suppress(OSError):
            left = NONCE_BYTES + MAC_BYTES
            while left:
                piece = source.recv(left)
                sink.sendall(piece)
                left -= len(piece)
            sink.sendall(change(b""))
            while piece := source.recv(1 << 16):
                sink.sendall(change(piece))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def shell(self, *command: str) -> tuple[str, str]:
        """What a user sees of `command` through the relay, output and errors; the input stays open."""
        argv = [sys.executable, "-c", OPEN, str(self._requests), "none", *command]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as user:
            assert user.stdout and user.stderr
            said = user.stdout.read(), user.stderr.read()
        assert self.program
        self._thread.join(LIMIT_S)
        self.program.wait(LIMIT_S)
        self._listener.close()
        return said


def first_request(folder: Path) -> Path:
    return until(lambda: shell_requests.lying_in(folder), "a request")[0]


def unchanged(piece: bytes) -> bytes:
    return piece


def test_who_relays_the_proof_can_neither_type_commands_nor_change_what_the_program_writes(tmp_path: Path) -> None:
    keys = f"touch {tmp_path}/typed\nexit 0\n".encode()
    forged = HEAD.pack(b"i", len(keys)) + keys + bytes(MAC_BYTES)
    out, wrong = Relay(tmp_path, lambda piece: piece or forged, unchanged).shell("sh")
    assert not (tmp_path / "typed").exists()
    assert "the shell on here has ended: a message was forged or changed in transit" in wrong and not out
    (other := tmp_path / "other").mkdir()
    relay = Relay(other, unchanged, lambda piece: piece.replace(b"all well", b"all lost"))
    out, wrong = relay.shell("echo", "all well")
    assert "the shell on here has ended: a message was forged or changed in transit" in wrong and not out


@contextlib.contextmanager
def sides(called_key: bytes, calling_key: bytes) -> Iterator[tuple[Proofs, Proofs, int]]:
    """Both sides of a proof, and the port of the called one."""
    with (
        socket.create_server(("", 0), backlog=MOST_LINKS) as listener,
        Proofs(called_key, CALLED) as called,
        Proofs(calling_key, CALLING) as calling,
    ):
        called.listen(listener)
        yield called, calling, listener.getsockname()[1]


def stepped(called: Proofs, calling: Proofs) -> tuple[Connection | None, Connection | None]:
    """The connections of both sides, after the calling side has proved the secret on one of its links or failed."""
    connections: list[Connection | None] = [None, None]
    until_s = time.monotonic() + LIMIT_S
    while calling.waiting and not all(connections) and time.monotonic() < until_s:
        connections = [had or side.step(0.01) for had, side in zip(connections, (called, calling), strict=True)]
    return connections[0], connections[1]


def test_both_sides_prove_the_secret() -> None:
    with sides(b"k" * 32, b"k" * 32) as (called, calling, port):
        calling.call("127.0.0.1", port)
        here, there = stepped(called, calling)
        assert here and there
        there.send(Frame.OUTPUT, b"text")
        here.send(Frame.INPUT, b"keys")
        assert here.receive() == (Frame.OUTPUT, b"text") and there.receive() == (Frame.INPUT, b"keys")


def test_who_calls_without_the_secret_is_sent_away() -> None:
    with sides(b"k" * 32, b"w" * 32) as (called, calling, port):
        calling.call("127.0.0.1", port)
        assert stepped(called, calling) == (None, None)
        assert called.failures == {"127.0.0.1": "the other side does not know the secret"}
        assert "127.0.0.1" in calling.failures


@pytest.mark.parametrize("reflects", [False, True])
def test_who_is_called_without_the_secret_is_left(reflects: bool) -> None:
    with socket.create_server(("", 0)) as listener, Proofs(b"k" * 32, CALLING) as calling:
        calling.call("127.0.0.1", listener.getsockname()[1])
        calling.step(LIMIT_S)
        link, _ = listener.accept()
        with link:
            while calling.waiting:
                came = link.recv(4096)
                link.sendall(came if reflects else secrets.token_bytes(len(came)))
                calling.step(LIMIT_S)
        assert calling.failures == {"127.0.0.1": "the other side does not know the secret"}


def test_silent_strangers_do_not_keep_the_job_out(tmp_path: Path) -> None:
    strangers: list[socket.socket] = []

    def job() -> None:
        path = first_request(tmp_path)
        port = shell_requests.read(path).port
        strangers.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(30))
        subprocess.run(
            [sys.executable, "-m", "torusrun.orchestrator.beside.shells.program", str(path)], timeout=LIMIT_S
        )

    thread = threading.Thread(target=job)
    thread.start()
    argv = [sys.executable, "-c", OPEN, str(tmp_path), "none", "echo", "here"]
    said = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    thread.join()
    for stranger in strangers:
        stranger.close()
    assert said.stdout == "here\n", said.stderr


def test_more_strangers_than_there_is_room_for_give_way() -> None:
    with sides(b"k" * 32, b"k" * 32) as (called, calling, port), contextlib.ExitStack() as strangers:
        for _ in range(MOST_LINKS + 3):
            strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
            called.step(LIMIT_S)
        calling.call("127.0.0.1", port)
        assert all(stepped(called, calling)) and len(called.waiting) < MOST_LINKS


def test_the_opening_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger sends one byte per second of the clock, and no byte moves the deadline."""
    seconds, links = itertools.count(), list[socket.socket]()

    def monotonic() -> float:
        if now := next(seconds):
            if not links:
                links.append(listener.accept()[0])
            links[0].sendall(b"x")
        return float(now)

    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=monotonic))
    with socket.create_server(("", 0)) as listener:
        asked = ShellRequest("n3", ("true",), (), addresses.network(), listener.getsockname()[1], "00", 0, 0)
        with pytest.raises(SiteError, match=r"127.0.0.1: no proof within 20 s\): nodes must reach this address"):
            program.connected(asked)
    links[0].close()
    assert next(seconds) < NONCE_BYTES, "it ended before the stranger had sent all"


def test_an_address_that_the_node_has_too_is_not_called() -> None:
    mine = (*addresses.addresses(), "127.0.0.1", "127.0.1.1")
    with socket.create_server(("", 0)) as stranger:
        stranger.setblocking(False)
        asked = ShellRequest("n3", ("true",), mine, "another network", stranger.getsockname()[1], "00", 0, 0)
        with pytest.raises(SiteError, match=r"\(this node has all its addresses\)"):
            program.connected(asked)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert addresses.ways(("192.0.2.1", *mine), "another network") == ("192.0.2.1",)
    assert addresses.ways(("192.0.2.1", *mine), addresses.network()) == ("127.0.0.1",), "the user is on this machine"
