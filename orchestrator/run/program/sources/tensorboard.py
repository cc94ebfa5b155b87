"""Progress from TensorBoard's event files, as PyTorch, Lightning, Keras and TensorFlow write them.

A program logs one step in several events. A row holds all of them: it is complete when the next step begins, or when no
event came for HELD_S.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torusrun.orchestrator.run.program.sources.event import TensorBoardEvent, parse
from torusrun.orchestrator.run.program.sources.growing import Growing
from torusrun.orchestrator.run.program.sources.rows import EVALUATED, LossName, Row, finite, row, whole
from torusrun.orchestrator.run.program.sources.tfrecord import Records

MOST_FILES = 16  # the newest ones are read
MOST_FOLDERS = 200
DEEPEST = 4  # levels of folders, as lightning_logs/version_0/train
HELD_S = 5.0
OF_EVENT_FILES = "tfevents"


class TensorBoard:
    """All event files below `folder`, which need not exist yet. Rows are in order of files, the newest file's last."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        self._files: dict[Path, _EventFile] = {}

    def new_rows(self, final: bool = False) -> list[Row]:
        """The rows written since the last call."""
        found = _found(self._folder)
        folders = {path.parent for path in found}
        for path in found[-MOST_FILES:]:
            if path not in self._files:
                self._files[path] = _EventFile(path, _prefix(path.parent, self._folder, folders))
        return [made for file in self._files.values() for made in file.new_rows(final, self._clock())]


class _EventFile:
    def __init__(self, path: Path, prefix: str) -> None:
        self._file = Growing(path, lambda: Records().feed)
        self._prefix = prefix
        self._loss = LossName()
        self._step = -1
        self._t = 0.0
        self._numbers: dict[str, float] = {}  # of this step
        self._told = True  # whether a row has all of them

    def new_rows(self, final: bool, now_s: float) -> list[Row]:
        found = []
        for event in self._events():
            if event.step != self._step:
                found += self._row()
                self._step, self._numbers = event.step, {}
            self._t = event.t
            self._numbers.update((self._prefix + tag, value) for tag, value in event.scalars.items())
            self._told = False
        if final or now_s - self._t > HELD_S:
            found += self._row()  # later events of this step give another row, with all of its numbers
        return found

    def _row(self) -> list[Row]:
        if self._told:
            return []
        self._told = True
        made = row(self._step, self._t, self._numbers)
        return [made if self._prefix else self._loss.add_to(made)]

    def _events(self) -> Iterator[TensorBoardEvent]:
        """The new events that have scalars and a step."""
        for record in self._file.new():
            try:
                event = parse(record)
            except ValueError:
                continue
            if event.scalars and whole(event.step) is not None and finite(event.t) is not None:
                yield event


def _found(folder: Path) -> list[Path]:
    """The event files below a folder, the newest last."""
    found: list[tuple[float, str]] = []
    folders = [(str(folder), 0)]
    for place, depth in folders:
        try:
            with os.scandir(place) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False) and depth < DEEPEST and len(folders) < MOST_FOLDERS:
                        folders.append((entry.path, depth + 1))
                    elif OF_EVENT_FILES in entry.name and entry.is_file(follow_symlinks=False):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
        except OSError:
            continue
    return [Path(path) for _, path in sorted(found)]


def _prefix(place: Path, top: Path, folders: set[Path]) -> str:
    """The prefix of a folder's tags, since several folders may have the same: Keras' evaluation, `add_scalars`."""
    above = next((folder for folder in place.parents if folder in folders and folder.is_relative_to(top)), None)
    if above:
        return f"{place.relative_to(above)}/"
    return f"{place.name}/" if place != top and EVALUATED.search(place.name.lower()) else ""
