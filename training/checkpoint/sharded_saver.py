"""The saves of a state that is spread over the ranks: each rank's process writes a share, and rank 0 completes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torusrun.training.checkpoint.saver import Saver
from torusrun.training.checkpoint.shards import ShardSnapshot
from torusrun.training.checkpoint.store import CheckpointFolder, Order
from torusrun.training.checkpoint.writer import Writer, Written
from torusrun.training.progress import Progress


class ShardedSaver(Saver):
    """As Saver, but every rank has a `writer`, and all call `save`, `look` and `finish` together.

    A checkpoint has two parts in time: all ranks write their files, then rank 0 names them in the manifest. If a rank
    could not write, the others' files are deleted. A checkpoint that ends in between is never completed: parts of it
    may be lost with their nodes.
    """

    def __init__(
        self,
        folder: CheckpointFolder | None,
        writer: Writer,
        *args: Any,
        shares: ShardSnapshot,
        order: Order,  # of which all ranks have the same folder, attempt and token
        texts: Callable[[str], list[str]],  # the text of every rank; all call it together
        **options: Any,
    ) -> None:
        super().__init__(folder, writer, *args, **options)
        self._write, self._shares, self._order, self._texts = writer, shares, order, texts
        self._own: Written | None = None  # how this rank's part of the newest checkpoint ended
        self._writes = False  # from the begin of a save until all ranks know how all parts ended
        self._shares_s = 0.0

    @property
    def written(self) -> int:
        return self._order.steps if self._own else 0

    def save(
        self,
        began_s: float,
        progress: Progress,
        epoch: float,
        state: Callable[[], dict[str, Any]],
        accuracy: float | None = None,
    ) -> None:
        """Begin a checkpoint; the `state` has `plain` and `sharded` parts."""
        self.finish()
        order = replace(self._order, steps=progress.steps, samples=progress.samples, epoch=epoch, accuracy=accuracy)
        try:
            files, own = self._shares.take(**state()), None
            self._write.begin(replace(order, files=files, last=False), self._shares.descriptor)
        except OSError as error:
            own = Written(order, {}, 0.0, error)
        self._order, self._own, self._writes = order, own, True
        self._saving_s = time.perf_counter() - began_s
        self.look()

    def look(self, written: int = 0) -> None:
        if self._writes:
            self._own = self._own or self._write.finished(wait=False)
            if written == self._order.steps:
                self._complete()
        else:
            self._end(wait=False)

    def finish(self) -> None:
        if self._writes:
            self._complete()
        self._end(wait=True)

    def _complete(self) -> None:
        """Wait for the parts of all ranks, and let rank 0's process complete the checkpoint."""
        self._own = self._own or self._write.finished(wait=True)
        assert self._own
        error = self._own.error
        words = [error.errno, error.strerror or str(error)] if error else None
        parts = list(map(json.loads, self._texts(json.dumps([words, self._own.files, self._own.writing_s]))))
        self._writes = False
        if self.folder is None:
            return
        self._shares_s = max(writing_s for _, _, writing_s in parts)
        if failed := [(words[0], f"rank {rank}: {words[1]}") for rank, (words, _, _) in enumerate(parts) if words]:
            self.folder.abandon(self._order)
            self._ended(Written(self._order, {}, self._shares_s, OSError(*failed[0])))
            return
        last = self.folder.order(self._order.progress, self._order.epoch, self._order.accuracy)
        files = {name: tuple(entry) for _, share, _ in parts for name, entry in share.items()}
        self._write.begin(replace(last, written=files, token=self._order.token), self._shares.descriptor)

    def _end(self, wait: bool) -> None:
        """Note the end of rank 0's order, once it has ended."""
        if done := self._write.finished(wait):
            self._ended(replace(done, writing_s=done.writing_s + self._shares_s))
