"""Measures the TCP bandwidth between two nodes, in both directions at once, over one connection.

The rate is that of the best of several short windows: a process that has to wait for a core loses windows, a slow link
has no good one. One stream and one core carry some 10 to 30 Gbit/s, so a port that is faster than that is checked by
its rate instead (ports.py).
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
import time

WINDOW_S = 0.1
CHUNK_BYTES = 1 << 20
OPEN_S = 3.0
TOKEN_S = 0.5  # a stranger who connects and is silent must not hold the listener
TOKEN_BYTES = 32


def call(address: str, port: int, token: bytes) -> socket.socket:
    """Connect to the other node. Raises OSError."""
    link = socket.create_connection((address, port), timeout=OPEN_S)
    link.sendall(token)
    return link


def accept(listener: socket.socket, token: bytes) -> socket.socket:
    """The connection of the other node, which knows the token of this measurement. Raises OSError without one."""
    until_s = time.monotonic() + OPEN_S
    while (left_s := until_s - time.monotonic()) > 0:
        listener.settimeout(left_s)
        link, _ = listener.accept()
        link.settimeout(min(left_s, TOKEN_S))
        with contextlib.suppress(OSError):
            if hmac.compare_digest(link.recv(TOKEN_BYTES, socket.MSG_WAITALL), token):
                return link
        link.close()
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
