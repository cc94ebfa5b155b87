"""The interface of a link to a login node: the standard streams of one command there."""

from __future__ import annotations

from typing import Protocol

SILENCE_S = 20.0  # the login node answers at least every 2 s, so a link is broken after such a silence
CONNECT_S = 10.0
LOGIN_S = 120.0  # for a user who types a second factor


class Channel(Protocol):
    """The standard streams of one command on the login node."""

    def send(self, data: bytes) -> None:
        """Send bytes. Raises LinkLost if the link does not take them within SILENCE_S."""

    def receive(self) -> bytes:
        """The next bytes, at least one. Raises LinkLost at the end, and after SILENCE_S without bytes."""

    def interact(self, command: str, *, terminal: bool) -> int:
        """Run another command with the streams of this program, with `terminal` on a terminal there; its exit code.

        Raises LinkLost if the link breaks.
        """

    def close(self) -> None: ...
