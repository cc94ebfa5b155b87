"""The socket between a job and the processes of its next attempt: READY, the word that names the attempt, TAKEN."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

CHANNEL = "TORUSRUN_STANDBY"  # the variable with the descriptor of the socket
READY, TAKEN = b"ready", b"taken"
LARGEST_BYTES = 1 << 16


def channel() -> socket.socket | None:
    """The socket that the job gave this process, once; None if it gave none."""
    number = os.environ.pop(CHANNEL, "")
    return socket.socket(fileno=int(number)) if number else None


def awaited(channel: socket.socket) -> dict[str, Any] | None:
    """Wait for the word of the job; None if it needs this process no more. Raises OSError."""
    channel.send(READY)
    text = channel.recv(LARGEST_BYTES)
    if text:
        channel.send(TAKEN)
    return json.loads(text) if text else None
