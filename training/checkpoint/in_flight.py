"""The current save on rank 0: copied to memory, then written while the training continues. At most one is current."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.checkpoint.store import CheckpointFolder, Order
from torusrun.training.checkpoint.writer import Writer, Written


class InFlight:
    """Begins saves into `folder` and follows each to its end, which it gives to `report`.

    `error` is that of the newest save that ended, `writing_s` the time of the newest write that succeeded.
    """

    def __init__(self, folder: CheckpointFolder, writer: Writer, report: Callable[[Written], None]) -> None:
        self.folder, self._writer, self._report = folder, writer, report
        self._snapshot = Snapshot()
        self._copying: Order | None = None  # an order whose state has not yet arrived from the device
        self.error: OSError | None = None
        self.writing_s = 0.0

    def begin(self, order: Order, state: dict[str, Any]) -> None:
        """Copy the state to memory, and begin to write it. The save before must be finished."""
        try:
            self._copying = replace(order, parts=self._snapshot.take(state))
        except OSError as error:
            self._ended(Written(order, "", 0.0, error))

    def look(self) -> None:
        """Advance the save without waiting: to be called after every step."""
        if self._copying and self._snapshot.ready():
            self._hand_over()
        if not self._copying:
            self._ended(self._writer.finished(wait=False))

    def finish(self) -> OSError | None:
        """Wait for the end of the save; the error with which the newest one ended."""
        if self._copying:
            self._snapshot.wait()
            self._hand_over()
        self._ended(self._writer.finished(wait=True))
        return self.error

    def _hand_over(self) -> None:
        if self._copying:
            self._writer.begin(self._copying, self._snapshot.descriptor)
            self._copying = None

    def _ended(self, written: Written | None) -> None:
        if written is None:
            return
        self.error = written.error
        if written.error is None:
            self.writing_s = written.writing_s
            self.folder.written(written.order, written.sha256)
        self._report(written)
