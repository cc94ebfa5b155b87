"""Streams of ours, joined to those of a program on the login node. Afterwards the terminal is as before."""

from __future__ import annotations

import os
import select
from typing import Any

from torusrun.orchestrator.base import ending
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.base.terminal.raw import raw

BLOCK_BYTES = 1 << 16
LOOKS_S = 0.5
SENDS_S = 0.02  # until the next try while the other side takes no bytes


def relay(channel: Any, streams: Streams, *, terminal: bool) -> int | None:
    """Carry bytes both ways until the program at the other end of a paramiko channel has ended.

    Returns its exit code; None if the link broke. With `terminal` every key is sent raw, and so is the window's size.
    """
    typed, ended = b"", False  # read but not sent yet; whether the input has ended
    with ending.in_order(), raw(terminal) as resized:
        while not (channel.closed or (channel.eof_received and channel.exit_status_ready())):
            inputs = [channel] if typed or ended else [channel, streams.input]
            ready, _, _ = select.select(inputs, [], [], SENDS_S if typed else LOOKS_S)
            if resized:  # sent from here, since the signal may arrive while paramiko sends
                resized.clear()
                channel.resize_pty(*os.get_terminal_size())
            _show(channel, streams.output)
            if any(source is not channel for source in ready):
                typed = os.read(streams.input, BLOCK_BYTES)
                ended = not typed
                if ended:
                    channel.shutdown_write()
            if typed and channel.send_ready():  # `sendall` would wait for ever if the program waits, too
                typed = typed[channel.send(typed) :]
        _show(channel, streams.output)
    return channel.exit_status if channel.exit_status_ready() and channel.exit_status >= 0 else None


def _show(channel: Any, output: int) -> None:
    both = (channel.recv_ready, channel.recv, output), (channel.recv_stderr_ready, channel.recv_stderr, 2)
    for ready, receive, stream in both:
        while ready():
            left = memoryview(receive(BLOCK_BYTES))
            while left:
                left = left[os.write(stream, left) :]
