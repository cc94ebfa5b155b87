"""Streams of ours, joined to those of a program on the login node. Afterwards the terminal is as before."""

from __future__ import annotations

import os
import select
from typing import Any

from orchestrator.base import ending
from orchestrator.base.process import Streams
from orchestrator.base.terminal.raw import raw

BLOCK_BYTES = 1 << 16
LOOKS_S = 0.5


def relay(channel: Any, streams: Streams, *, terminal: bool) -> int | None:
    """Carry bytes both ways until the program at the other end of a paramiko channel has ended.

    Returns its exit code; None if the link broke. With `terminal` every key is sent raw, and so is the window's size.
    """
    inputs: list[Any] = [channel, streams.input]
    with ending.in_order(), raw(terminal) as resized:
        while not (channel.closed or (channel.eof_received and channel.exit_status_ready())):
            ready, _, _ = select.select(inputs, [], [], LOOKS_S)
            if resized:  # sent from here, since the signal may arrive while paramiko sends
                resized.clear()
                channel.resize_pty(*os.get_terminal_size())
            _show(channel, streams.output)
            if any(source is not channel for source in ready):
                inputs = inputs if _send(channel, inputs[1]) else [channel]
        _show(channel, streams.output)
    return channel.exit_status if channel.exit_status_ready() and channel.exit_status >= 0 else None


def _show(channel: Any, output: int) -> None:
    both = (channel.recv_ready, channel.recv, output), (channel.recv_stderr_ready, channel.recv_stderr, 2)
    for ready, receive, stream in both:
        while ready():
            left = memoryview(receive(BLOCK_BYTES))
            while left:
                left = left[os.write(stream, left) :]


def _send(channel: Any, stream: int) -> bool:
    """Send the typed bytes. Returns False at the end of the input."""
    data = os.read(stream, BLOCK_BYTES)
    if data:
        channel.sendall(data)
    else:
        channel.shutdown_write()
    return bool(data)
