"""The saves of a training: our own and a user's script take theirs by the same steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torusrun.training.checkpoint.interval import Interval
from torusrun.training.checkpoint.loading import Plain
from torusrun.training.checkpoint.manifest import STATE
from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.checkpoint.store import CheckpointFolder, Order
from torusrun.training.checkpoint.writer import Writer, Written
from torusrun.training.progress import Progress


class Saver:
    """The saves of an attempt, on each of its ranks; rank 0 alone has a `folder` and a `writer`, and saves.

    A save copies the state to memory; the `writer` writes it while the training continues. One write is in flight at
    most: a save that is due earlier waits for it, so that a run has the checkpoints that it names.
    """

    def __init__(
        self,
        folder: CheckpointFolder | None,
        writer: Writer | None,
        interval: Interval,
        *,
        from_rank_0: Callable[[int], int],  # rank 0's number on every rank; all call it together
        report: Callable[[Written, float], None],  # gets the end of each save, and how long the training waited for it
        keys: str = "",  # precedes the name of a part in errors
    ) -> None:
        self.folder, self._writer, self._interval = folder, writer, interval
        self._from_rank_0, self._report, self._keys = from_rank_0, report, keys
        self._snapshot, self._plain = Snapshot(), Plain()
        self._copying: Order | None = None  # an order whose state has not yet arrived from the device
        self._saving_s = self._writing_s = 0.0  # of the newest save, and of the newest write that succeeded
        self.error: OSError | None = None  # of the newest save that ended

    def begin(self, steps: int) -> None:
        """The first step of the attempt begins, after `steps`."""
        self._interval.begin(steps, time.perf_counter())

    def due(self, before: int, steps: int) -> bool:
        """Whether a checkpoint is due after `steps`, if none was due after `before`; the same on all ranks."""
        return self._interval.due(before, steps)

    def save(
        self,
        began_s: float,  # when the training began to wait for this save
        progress: Progress,
        epoch: float,
        state: Callable[[], dict[str, Any]],
        accuracy: float | None = None,
    ) -> None:
        """Begin a checkpoint of the `state`. Raises ConfigError if it could not be loaded again.

        The training continues with the older checkpoints if it cannot be written.
        """
        if self.folder:
            self.finish()
            order, parts = self.folder.order(progress, epoch, accuracy), state()
            self._plain.check({f"{self._keys}{name}": part for name, part in parts.items()})
            try:
                self._copying = replace(order, files={STATE: self._snapshot.take(parts)})
            except OSError as error:
                self._ended(Written(order, {}, 0.0, error))
        self._saving_s = time.perf_counter() - began_s
        self.look()

    def measure(self, steps: int) -> None:
        """Let rank 0 say when the next save is due: all ranks call it together, after a save."""
        if self._interval.measures:
            now_s, after = time.perf_counter(), 0
            if self.folder:
                after = self._interval.measured(steps, now_s, save_s=self._saving_s, writing_s=self._writing_s)
            self._interval.next(steps, self._from_rank_0(after))

    @property
    def written(self) -> int:
        """The steps of the newest checkpoint whose files this rank has written, if others write too."""
        return 0

    def look(self, written: int = 0) -> None:
        """Advance the save in flight without waiting: to be called after every step.

        `written` is the least of all ranks, if others write too.
        """
        if self._copying and self._snapshot.ready():
            self._hand_over()
        if self._writer and not self._copying:
            self._ended(self._writer.finished(wait=False))

    def finish(self) -> None:
        """Wait for the end of the save in flight."""
        if self._copying:
            self._snapshot.wait()
            self._hand_over()
        if self._writer:
            self._ended(self._writer.finished(wait=True))

    def finish_on_all_ranks(self) -> bool:
        """Wait on every rank for the end of the save; False on all if it failed. All must call it together."""
        self.finish()
        return not self._from_rank_0(self.error is not None)

    def _hand_over(self) -> None:
        if self._copying and self._writer:
            self._writer.begin(self._copying, self._snapshot.descriptor)
            self._copying = None

    def _ended(self, written: Written | None) -> None:
        if written is None or self.folder is None:
            return
        self.error = written.error
        if written.error is None:
            self._writing_s = written.writing_s
            self.folder.written(written.order, written.files)
        self._report(written, self._saving_s)
