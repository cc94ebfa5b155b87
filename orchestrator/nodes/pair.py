"""Measures the TCP bandwidth between two nodes, in both directions at once, over one connection.

The rate is that of the best of several short windows: a process that has to wait for a core loses windows, a slow link
has no good one. One stream and one core carry some 10 to 30 Gbit/s, so a port that is faster than that is checked by
its rate instead (checks.py).
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import threading
import time

WINDOW_S = 0.1
CHUNK_BYTES = 1 << 20
OPEN_S = 3.0
TOKEN_BYTES = 32
MOST_STRANGERS = 128  # connections that have not sent the token yet


def call(address: str, port: int, token: bytes) -> socket.socket:
    """Connect to the other node. Raises OSError."""
    link = socket.create_connection((address, port), timeout=OPEN_S)
    link.sendall(token)
    return link


def accept(listener: socket.socket, token: bytes) -> socket.socket:
    """The connection of the other node, which knows the token of this measurement. Raises OSError without one.

    All connections are read at once: strangers who connect and are silent do not keep the other node out.
    """
    until_s, sent = time.monotonic() + OPEN_S, dict[socket.socket, bytes]()
    listener.setblocking(False)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        try:
            while (left_s := until_s - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    link = key.fileobj
                    if link is listener:
                        _greet(listener, selector, sent)
                    elif link in sent and _has_sent(link, selector, sent, token):  # else it has just given way
                        return link
        finally:
            for stranger in sent:
                stranger.close()
    raise TimeoutError("the other node did not connect")


def _greet(listener: socket.socket, selector: selectors.BaseSelector, sent: dict[socket.socket, bytes]) -> None:
    """Accept a connection; the oldest gives way if there are too many."""
    with contextlib.suppress(OSError):
        link, _ = listener.accept()
        link.setblocking(False)
        selector.register(link, selectors.EVENT_READ)
        sent[link] = b""
        if len(sent) > MOST_STRANGERS:
            _dismiss(next(iter(sent)), selector, sent)


def _has_sent(
    link: socket.socket, selector: selectors.BaseSelector, sent: dict[socket.socket, bytes], token: bytes
) -> bool:
    """Read from a connection; whether it has sent the whole token. It is closed if it has sent another one."""
    try:
        data = link.recv(TOKEN_BYTES - len(sent[link]))
    except BlockingIOError:
        return False
    except OSError:
        data = b""
    sent[link] += data
    if hmac.compare_digest(sent[link], token):
        selector.unregister(link)
        del sent[link]
        return True
    if not data or len(sent[link]) == TOKEN_BYTES:
        _dismiss(link, selector, sent)
    return False


def _dismiss(link: socket.socket, selector: selectors.BaseSelector, sent: dict[socket.socket, bytes]) -> None:
    selector.unregister(link)
    del sent[link]
    link.close()


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
