"""The proof that begins a connection: both sides prove that they know the request's secret, and derive frame keys.

Each side sends 32 random bytes. First the calling side proves that it knows the secret, then the called side.
Proofs and keys are HMAC-SHA256 with the secret as key, over a purpose, a side and the random bytes of both sides.
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
MOST = 128  # links at once; then the oldest is dropped, since a side with the secret proves it at once
CALLED, CALLING = b"called", b"calling"


class Proof:
    """The state of the proof over one link. No call blocks."""

    def __init__(self, link: socket.socket, name: str, key: bytes, side: bytes) -> None:
        self.link, self.name = link, name
        self._key, self._side = key, side
        self._other = CALLING if side == CALLED else CALLED
        self._mine, self._read = secrets.token_bytes(NONCE_BYTES), bytearray()

    def begin(self) -> None:
        """Send the random bytes. Call it once the link is writable. Raises OSError if the link failed."""
        if number := self.link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(number, os.strerror(number))
        self.link.sendall(self._mine)

    def read(self) -> Connection | None:
        """Read the bytes that have arrived; the connection once the proof is complete. Raises OSError if it fails."""
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
        if self._side == CALLED:  # the called side proves nothing to an unproved caller
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
    """Links on which the other side must still prove the secret. The first complete proof makes the connection.

    All links are read concurrently, so that a slow or silent one delays no other. `failures` maps addresses to the
    reasons why their links ended.
    """

    def __init__(self, key: bytes, side: bytes) -> None:
        self._key, self._side = key, side
        self._links = selectors.DefaultSelector()
        self._proofs: list[Proof] = []
        self.failures: dict[str, str] = {}

    def listen(self, listener: socket.socket) -> None:
        """Add every link that `listener` accepts from now on."""
        listener.setblocking(False)
        self._links.register(listener, selectors.EVENT_READ, listener)

    def call(self, address: str, port: int) -> None:
        """Add a link to `address` (IPv4)."""
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
        """Wait for bytes or a link, at most `longest_s`; the connection, if a proof is complete."""
        for ready, _ in self._links.select(longest_s):
            if isinstance(ready.data, Proof):
                if connection := self._go_on(ready.data, ready.events):
                    return connection
            else:
                with contextlib.suppress(OSError):  # the caller may be gone
                    link, (address, _) = ready.data.accept()
                    link.setblocking(False)
                    self._add(link, address)
        return None

    def _go_on(self, proof: Proof, events: int) -> Connection | None:
        if proof not in self._proofs:  # it was dropped for another
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
