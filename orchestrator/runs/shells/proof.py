"""The proof with which a connection begins: both sides know the request's secret, and get keys for their frames.

Each side sends 32 random bytes. Then the caller proves that it knows the secret, and then the side that was called.
Proofs and keys are HMAC-SHA256 of the secret over a purpose, a side and the random bytes of both.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import secrets
import selectors
import socket

from orchestrator.runs.shells.connection import MAC_BYTES, Broken, Connection

NONCE_BYTES = 32
MOST = 128  # links at once; the oldest gives way, since who knows the secret proves it at once
CALLED, CALLING = b"called", b"calling"


class Proof:
    """The proof over one link, as far as it has come. No call waits."""

    def __init__(self, link: socket.socket, name: str, key: bytes, side: bytes) -> None:
        self.link, self.name = link, name
        self._key, self._side = key, side
        self._other = CALLING if side == CALLED else CALLED
        self._mine, self._read = secrets.token_bytes(NONCE_BYTES), bytearray()

    def begin(self) -> None:
        """To be called once the link can be written to. Raises OSError if it does not exist."""
        if number := self.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, os.strerror(number))
        self.link.sendall(self._mine)

    def read(self) -> Connection | None:
        """Read what has come; the connection, if this was the last of it. Raises OSError if the other side fails."""
        had = len(self._read)
        if not (piece := self.link.recv(NONCE_BYTES + MAC_BYTES - had)):
            raise Broken("the other side has closed the connection")
        self._read += piece
        if self._side == CALLING and had < NONCE_BYTES <= len(self._read):
            self._prove()
        if len(self._read) < NONCE_BYTES + MAC_BYTES:
            return None
        if not hmac.compare_digest(self._read[NONCE_BYTES:], self._derived(b"proof", self._other)):
            raise Broken("the other side does not know the secret")
        if self._side == CALLED:  # a stranger who calls gets no proof
            self._prove()
        return self._connection()

    def _prove(self) -> None:
        self.link.sendall(self._derived(b"proof", self._side))

    def _derived(self, purpose: bytes, side: bytes) -> bytes:
        theirs = bytes(self._read[:NONCE_BYTES])
        both = self._mine + theirs if self._side == CALLED else theirs + self._mine
        return hmac.digest(self._key, b"torusrun shell, %b, %b: %b" % (purpose, side, both), "sha256")

    def _connection(self) -> Connection:
        self.link.setblocking(True)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sends, receives = (self._derived(b"frames", side) for side in (self._side, self._other))
        return Connection(self.link, sends=sends, receives=receives)


class Proofs:
    """Links on which the other side still has to prove the secret. The first proof makes the connection.

    All are read at once, so that a stranger who is slow or silent delays nobody. `failures` says by address how links
    ended.
    """

    def __init__(self, key: bytes, side: bytes) -> None:
        self._key, self._side = key, side
        self._links = selectors.DefaultSelector()
        self._proofs: list[Proof] = []
        self.failures: dict[str, str] = {}

    def listen(self, listener: socket.socket) -> None:
        """Add every link that comes in at `listener` from now on."""
        listener.setblocking(False)
        self._links.register(listener, selectors.EVENT_READ, listener)

    def call(self, address: str, port: int) -> None:
        """Add a link to `address`, an IPv4 address."""
        link = socket.socket()
        link.setblocking(False)
        number = link.connect_ex((address, port))
        self._add(link, address)
        if number not in (0, errno.EINPROGRESS):
            self._drop(self._proofs[-1], os.strerror(number))

    def _add(self, link: socket.socket, name: str) -> None:
        if len(self._proofs) == MOST:
            self._drop(self._proofs[0], "it was too slow")
        self._proofs.append(Proof(link, name, self._key, self._side))
        self._links.register(link, selectors.EVENT_WRITE, self._proofs[-1])

    def step(self, longest_s: float) -> Connection | None:
        """Wait until something comes; the connection, if a proof is complete."""
        for ready, _ in self._links.select(longest_s):
            if isinstance(ready.data, Proof):
                if connection := self._go_on(ready.data, ready.events):
                    return connection
            else:
                with contextlib.suppress(OSError):  # the caller may be gone already
                    link, (address, _) = ready.data.accept()
                    link.setblocking(False)
                    self._add(link, address)
        return None

    def _go_on(self, proof: Proof, events: int) -> Connection | None:
        if proof not in self._proofs:  # it gave way to another
            return None
        try:
            if events == selectors.EVENT_WRITE:
                proof.begin()
                self._links.modify(proof.link, selectors.EVENT_READ, proof)
            elif connection := proof.read():
                self._links.unregister(proof.link)
                self._proofs.remove(proof)
                return connection
        except OSError as error:
            self._drop(proof, error.strerror or str(error))
        return None

    def _drop(self, proof: Proof, why: str) -> None:
        self._links.unregister(proof.link)
        self._proofs.remove(proof)
        proof.link.close()
        self.failures[proof.name] = why

    @property
    def waiting(self) -> list[str]:
        """The names of the links that are neither proved nor ended."""
        return [proof.name for proof in self._proofs]

    def __enter__(self) -> Proofs:
        return self

    def __exit__(self, *raised: object) -> None:
        for proof in self._proofs:
            proof.link.close()
        self._links.close()
