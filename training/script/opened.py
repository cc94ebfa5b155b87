"""Rank 0's side of a script's checkpoints: their folder, for one training at a time, and the process that writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torusrun.training.checkpoint import manifest, writer
from torusrun.training.checkpoint.in_flight import InFlight
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.checkpoint.writer import Written
from torusrun.training.files import lock
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import CheckpointKeys
from torusrun.training.reporting.output import warn

LOCK = ".lock"
LOCKED_S = 2 * writer.ALONE_S  # a writer whose training has ended holds the lock for ALONE_S at most


class Opened:
    """The folder and its writer. Raises OSError, RuntimeError or ValueError if the folder cannot be used."""

    def __init__(
        self, folder: Path, attempt: int, last: int, kept: tuple[int, ...], report: Callable[[Written], None]
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        _refuse_foreign(folder)
        self.folder = CheckpointFolder(folder, attempt, CheckpointKeys(last=last))
        self._writer = writer.start_anew((self._lock, *kept))
        self.flight = InFlight(self.folder, self._writer, report)

    def begin(self, steps: int, state: dict[str, Any]) -> None:
        """Begin to save the state after `steps`, once the save before is finished."""
        self.flight.finish()
        self.flight.begin(self.folder.order(Progress(steps), 0.0, []), state)

    def close(self) -> None:
        """End the process that writes, and let another training use the folder."""
        self._writer.close()
        with suppress(OSError):  # a file system without locks; `close` is not enough, as for the process
            lock.release(self._lock)
        os.close(self._lock)


def _locked(folder: Path) -> int:
    """The lock of the folder. Raises RuntimeError if another training keeps it."""

    def say() -> None:
        warn(f"torusrun: {folder}: waits for the previous training, which still writes")

    descriptor = lock.opened(folder / LOCK)
    if lock.take(descriptor, wait_s=LOCKED_S, waiting=say) is False:
        os.close(descriptor)
        raise RuntimeError(f"{folder}: another training saves its checkpoints here; end it, or name another folder")
    return descriptor


def _refuse_foreign(folder: Path) -> None:
    """Raises ValueError if something else has the name of a checkpoint: it would be deleted as an old one."""
    for path in manifest.candidates(folder):
        if not os.path.lexists(path / manifest.MANIFEST):
            raise ValueError(f"{path}: this is not a checkpoint of torusrun; move it away, or name another folder")
