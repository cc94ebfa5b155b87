"""Waits for what a rank's training leaves behind: the process that still writes a checkpoint.

Some schedulers kill the processes of a rank that its wrapper leaves behind. The write end of a pipe is open in the
program and in the processes that inherit it, so its read end ends with the last of them.
"""

from __future__ import annotations

import os
import select


class LeftBehind:
    """The processes that hold the descriptor `kept`, apart from this one until `begun`."""

    def __init__(self) -> None:
        self._end, self.kept = os.pipe()

    def begun(self) -> None:
        """The program has inherited the descriptor."""
        os.close(self.kept)

    def wait(self, most_s: float) -> bool:
        """Wait until none of them is left; False if one still lives after `most_s`."""
        return bool(select.select([self._end], [], [], most_s)[0])
