"""Waits for what a rank's training leaves behind: the process that still writes a checkpoint.

Some schedulers kill the processes of a rank that its wrapper leaves behind. The write end of a pipe is open in the
program and in the processes that inherit it, so its read end ends with the last of them.
"""

from __future__ import annotations

import math
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
        """Wait until none of them is left, once; False if one still lives after `most_s`."""
        waiting = select.poll()  # select takes no descriptor above 1023
        waiting.register(self._end, select.POLLIN)
        try:
            return bool(waiting.poll(math.ceil(most_s * 1000)))
        finally:
            os.close(self._end)
