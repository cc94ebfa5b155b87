"""What carries a session to a login node: the standard streams of one command there."""

from __future__ import annotations

from typing import Protocol

SILENCE_S = 20.0  # the login node answers at least every 2 s, so a link that is silent for so long is broken
CONNECT_S = 10.0
LOGIN_S = 120.0  # for a user who types a second factor


class Channel(Protocol):
    """The standard streams of one command on the login node."""

    def send(self, data: bytes) -> None:
        """Raises LinkLost when it is not taken within SILENCE_S."""

    def receive(self) -> bytes:
        """What arrives next, not empty. Raises LinkLost at the end, and after SILENCE_S without anything."""

    def interact(self, command: str, *, terminal: bool) -> int:
        """Run another command with the streams of this program, on a terminal there with `terminal`; its exit code.

        Raises LinkLost when the link breaks.
        """

    def close(self) -> None: ...
