"""The ProxyCommand of an ssh client (`torusrun shell RUN --proxy`), which leads to an sshd beside a rank.

The sshd (ssh_server.py) is started by the way of `shell`, has a new key for each connection, and lets in a single key.
That key lies in a private folder of the client's machine. The sshd's public key comes back by the same way, into a list
of known hosts in that folder. For a run on a login node the verb there starts the sshd, with a key of this machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from torusrun.orchestrator.base import lock, private, process
from torusrun.orchestrator.base.errors import DONE, SiteError, explained
from torusrun.orchestrator.base.listening import BLOCK_BYTES
from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.beside import leading
from torusrun.orchestrator.beside.forward import carry
from torusrun.orchestrator.beside.shell import Beside, beside
from torusrun.orchestrator.beside.ssh_server import KIND, made_key
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.run.folder.run_folder import RunFolder

PROGRAM = "torusrun.orchestrator.beside.ssh_server"
HOST = "torusrun"  # its name for ssh, and in the list of known hosts
MOST_KNOWN = 64  # keys of the newest connections
LOCK_S = 5.0
CONFIG = """Host {host}
    ProxyCommand torusrun shell {run}{options} --proxy
    User {user}
    IdentityFile {folder}/id
    IdentitiesOnly yes
    HostKeyAlias {host}
    UserKnownHostsFile {folder}/known_hosts
    StrictHostKeyChecking yes
    UpdateHostKeys no
"""


def configuration(run: str, options: str, user: str) -> str:
    """The lines of ~/.ssh/config with which `ssh torusrun` opens the host of a rank of this run, as this user."""
    return CONFIG.format(host=HOST, run=run, options=options, user=user, folder=_client_key().parent)


def proxy(run: RunFolder, rank: int, role: str = "") -> int:
    """Join our standard streams to an sshd on the host of a rank, until one of both ends; DONE.

    Raises UserError if the run is not running or has no such rank, SiteError if its host has no sshd or is not reached.
    """
    place = beside(run, rank, role)
    return joined(place.host, lambda key, streams: _started(place, key, streams))


def serve(run: RunFolder, rank: int, role: str, key: str) -> int:
    """Start the sshd for the client of another machine, which has this key, on our standard streams, as pieces.

    Raises as `proxy` does.
    """
    return _started(beside(run, rank, role), key, STANDARD)


def _started(place: Beside, key: str, streams: Streams) -> int:
    words = process.module(place.plan.python, PROGRAM, key)
    return place.start(words, terminal=False, streams=streams)


def joined(host: str, start: Callable[[str, Streams], int]) -> int:
    """Join our standard streams to an sshd, which `start` starts for our key on other streams; DONE. Raises SiteError.

    `host` is its name in errors.
    """
    key = _client_key()
    public = key.with_suffix(".pub").read_text().strip()

    def lead(_: None, pieces: leading.Pieces) -> None:
        pieces.begun()
        first = pieces.recv(BLOCK_BYTES).decode(errors="replace")
        if not first.startswith(f"{KIND} ") or not first.isprintable():
            raise SiteError(f"{host}: {plain(first)}")
        _expect(key.with_name("known_hosts"), first)
        _carry(pieces)

    with explained(f"{host}: the connection broke"):
        carry(None, lambda streams: start(public, streams), lead)
    return DONE


def _carry(pieces: leading.Pieces) -> None:
    """Join our standard streams until the sshd ends. A shell around us may keep them open: their end ends nothing."""

    def hand_on() -> None:
        with contextlib.suppress(OSError):
            while typed := os.read(0, BLOCK_BYTES):
                pieces.sendall(typed)
            pieces.shutdown(socket.SHUT_WR)

    threading.Thread(target=hand_on, daemon=True).start()
    while data := pieces.recv(BLOCK_BYTES):
        while data:
            data = data[os.write(1, data) :]


def _client_key() -> Path:
    """The key that the sshd lets in, with its public part beside it; made once."""
    folder = state_folder() / "ssh"
    private.make(folder)
    with lock.held(folder / "lock", wait_s=LOCK_S):
        return made_key(folder / "id")


def _expect(known: Path, public: str) -> None:
    """Add a host's public key to a list of known hosts."""
    with lock.held(known.with_name("lock"), wait_s=LOCK_S), explained(f"{known}: it cannot be written"):
        before = known.read_text().splitlines() if known.exists() else []
        lines = [*before[1 - MOST_KNOWN :], f"{HOST} {public}"]
        private.write_bytes(known, "".join(f"{line}\n" for line in lines).encode())
