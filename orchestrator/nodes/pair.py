"""Measures the TCP bandwidth between two nodes, in both directions at once, over one connection.

The rate is that of the best of several short windows: a process that has to wait for a core loses windows, a slow link
has no good one. One stream and one core carry some 10 to 30 Gbit/s, so a port that is faster than that is checked by
its rate instead (checks.py).
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from torusrun.orchestrator.job.connection import CALLED, CALLING, Proofs

WINDOW_S = 0.1
CHUNK_BYTES = 1 << 20
OPEN_S = 3.0
TOKEN_BYTES = 32


def call(address: str, port: int, token: bytes) -> socket.socket:
    """Connect to the other node, which proves that it knows the token of this measurement. Raises OSError."""
    until_s = time.monotonic() + OPEN_S
    with Proofs(token, CALLING) as proofs:
        proofs.add(socket.create_connection((address, port), timeout=OPEN_S), address)
        while proofs.waiting and (left_s := until_s - time.monotonic()) > 0:
            if connection := proofs.step(left_s):
                return connection.link
    raise TimeoutError("the other node did not answer")


def accept(listener: socket.socket, token: bytes) -> socket.socket:
    """The connection of the other node, which proves that it knows the token. Raises OSError without one."""
    until_s = time.monotonic() + OPEN_S
    with Proofs(token, CALLED) as proofs:
        proofs.listen(listener)
        while (left_s := until_s - time.monotonic()) > 0:
            if connection := proofs.step(left_s):
                return connection.link
    raise TimeoutError("the other node did not connect")


def received(link: socket.socket, measure_s: float) -> float:
    """Send and receive for `measure_s` seconds; the rate of received bytes in the best window, in bytes per second."""
    link.settimeout(measure_s)
    sender = threading.Thread(target=_send, args=(link, time.monotonic() + measure_s), daemon=True)
    sender.start()
    best, buffer = 0.0, bytearray(CHUNK_BYTES)
    end_s = time.monotonic() + measure_s
    with contextlib.suppress(OSError):  # the other node may end a moment earlier
        while time.monotonic() < end_s:
            best = max(best, _window(link, buffer))
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    sender.join(measure_s)
    link.close()
    return best


def _window(link: socket.socket, buffer: bytearray) -> float:
    began_s, count = time.monotonic(), 0
    while (now_s := time.monotonic()) < began_s + WINDOW_S:
        if not (size := link.recv_into(buffer)):
            raise ConnectionError("the other node has closed the connection")
        count += size
    return count / (now_s - began_s)


def _send(link: socket.socket, until_s: float) -> None:
    chunk = bytes(CHUNK_BYTES)
    with contextlib.suppress(OSError):
        while time.monotonic() < until_s:
            link.send(chunk)
