"""The checkpoints of a run that a role judges: which are complete, which comes next, and which it has judged.

A checkpoint of our training, or of `torusrun.Checkpoints`, is complete with its manifest; any other checkpoint once it
has not changed for SETTLED_S, or the main role is over.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.run.folder.checkpoints import finished, looks_of
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.checkpoint.manifest import MANIFEST, STATE, IncompleteCheckpoint, verify
from torusrun.training.files import lock

SETTLED_S = 10.0
LARGEST_POINTER = 256  # bytes of a file that names the newest checkpoint
STEP = re.compile(r"(?:step|iter(?:ation)?|checkpoint|ckpt)s?[-_=.]?(\d{1,15})", re.IGNORECASE)


@dataclass(frozen=True)
class CompleteCheckpoint:
    """A complete checkpoint. `version` differs once the name has another content; `step` is None if not known."""

    path: Path
    version: str = ""
    step: int | None = None


class ToJudge:
    """The checkpoints in `folder` for a role, whose judgements the file `record` keeps over attempts."""

    def __init__(
        self, folder: Path, record: Path, *, newest: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._record, self._newest, self._clock = folder, record, newest, clock
        self._judged: dict[str, str] = {}  # name -> version
        with contextlib.suppress(SiteError, AttributeError):  # of a damaged record: all is judged again
            kept = (read_object(record) or {}).get("judged", {})
            self._judged = {name: version for name, version in kept.items() if type(version) is str}
        self._seen: dict[str, tuple[str, float]] = {}  # name -> how it looked, and since when

    def next(self, *, over: bool = False) -> CompleteCheckpoint | None:
        """The next checkpoint to judge; None if none is complete. `over` says that no more will be written."""
        fresh = [each for each in self._complete(over) if self._is_new(each)]
        return fresh[-1 if self._newest else 0] if fresh else None

    def judged(self, checkpoint: CompleteCheckpoint) -> None:
        """Record that a checkpoint is judged, and with `newest` that older ones are skipped. Raises SiteError."""
        complete = self._complete(over=True) if self._newest else []
        older = complete[: complete.index(checkpoint)] if checkpoint in complete else []
        self._judged |= {each.path.name: each.version for each in (*older, checkpoint)}
        write_json(self._record, {"schema": 1, "judged": self._judged})

    def _is_new(self, checkpoint: CompleteCheckpoint) -> bool:
        return self._judged.get(checkpoint.path.name) != checkpoint.version

    def _complete(self, over: bool) -> list[CompleteCheckpoint]:
        """The complete checkpoints, the oldest first: by their steps, or by time if a step is not known."""
        paths = finished(self._folder)[::-1]
        names = {path.name for path in paths}
        complete = [each for path in paths if not _is_pointer(path, names) and (each := self._read(path, over))]
        known = all(each.step is not None for each in complete)
        return sorted(complete, key=lambda each: each.step or 0) if known else complete

    def _read(self, path: Path, over: bool) -> CompleteCheckpoint | None:
        if (path / MANIFEST).exists():
            with contextlib.suppress(IncompleteCheckpoint):
                ours = verify(path, contents=False)
                return CompleteCheckpoint(path, ours.sha256.get(STATE, "")[:16], ours.step)
            return None
        try:
            status = os.lstat(path)
        except OSError:
            return None
        # A role may write its results into the checkpoint: a folder is known by its inode alone.
        version = str(status.st_ino) if path.is_dir() else f"{status.st_mtime_ns}.{status.st_size}"
        checkpoint = CompleteCheckpoint(path, version, int(named[-1]) if (named := STEP.findall(path.name)) else None)
        if over or not self._is_new(checkpoint):
            return checkpoint
        now_s, looks = self._clock(), looks_of(path)
        if self._seen.get(path.name, ("", 0.0))[0] != looks:
            self._seen[path.name] = (looks, now_s)
        return checkpoint if now_s - self._seen[path.name][1] >= SETTLED_S else None


def judged_so_far(run: RunFolder) -> str:
    """A text that differs once another checkpoint of a run is judged; '' if none has been."""
    with contextlib.suppress(OSError):
        records = sorted(run.folder.glob(run.judged("*").name))
        return "".join(f".{record.stat().st_mtime_ns}" for record in records)
    return ""


def _is_pointer(path: Path, names: set[str]) -> bool:
    """Whether a link, or a small file, only names another entry, as `latest` does."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_symlink():
            return True
        if path.is_file() and path.stat().st_size <= LARGEST_POINTER:
            with open(open_regular(path), "rb") as file:
                return file.read(LARGEST_POINTER).decode().strip() in names - {path.name}
    return False


@contextlib.contextmanager
def kept(checkpoint: CompleteCheckpoint) -> Iterator[bool]:
    """Keep a checkpoint as long as it is judged, although our training removes old checkpoints; False if it is gone.

    Whoever removes a checkpoint locks it (training/checkpoint/store.py). Without locks it may go at any time.
    """
    try:
        descriptor = open_regular(checkpoint.path / STATE)
    except OSError:  # it is not of our training, or gone
        yield checkpoint.path.exists()
        return
    try:
        yield lock.take(descriptor, shared=True, wait_s=0.0) is not False and checkpoint.path.exists()
    finally:
        os.close(descriptor)
