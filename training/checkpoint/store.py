"""The folder of checkpoints: each is complete or absent, and those stay that the recipe keeps. No torch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, NamedTuple

from torusrun.training.checkpoint import manifest
from torusrun.training.checkpoint.manifest import STATE
from torusrun.training.files import lock
from torusrun.training.files.below import BY_UMASK, Below, opened
from torusrun.training.files.trusted import BLOCK_BYTES, put, sync, sync_folder
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import CheckpointKeys


class Point(NamedTuple):
    """A checkpoint after `step` steps and `epoch` epochs; its `accuracy` is None if it was not evaluated."""

    step: int
    epoch: float
    accuracy: float | None = None


def kept(points: Iterable[Point], keys: CheckpointKeys) -> set[int]:
    """The steps of the checkpoints that stay: the newest, and the best (the newest of equally good checkpoints)."""
    ordered = sorted(points)
    stay = {point.step for point in ordered[-keys.last :]}
    evaluated = [point for point in ordered if point.accuracy is not None]
    if keys.best and evaluated:
        stay.add(max(evaluated, key=lambda point: (point.accuracy, point.step)).step)
    return stay


MODE = 0o666  # of files, less the umask


@dataclass(frozen=True)
class Order:
    """A checkpoint to write below `folder`, and the steps of the older checkpoints that stay; None: all stay.

    The content of its `files` lies in a shared memory, in parts (offset, length) in the order of the file. If several
    ranks write files, none of their orders is the `last`. One more follows, with the (bytes, SHA-256) of all files that
    are `written`: it alone makes the checkpoint complete. They share a `token` that no other training has.
    """

    folder: str
    attempt: int
    steps: int
    samples: int
    epoch: float
    accuracy: float | None
    keep: list[int] | None
    files: dict[str, list[tuple[int, int]]]
    written: dict[str, tuple[int, str]] = field(default_factory=dict)
    last: bool = True
    token: int = 0

    @property
    def name(self) -> str:
        return manifest.name_of(self.steps)

    @property
    def progress(self) -> Progress:
        return Progress(self.steps, self.samples)

    @property
    def temporary(self) -> str:
        return f"{manifest.TEMPORARY_PREFIX}{self.name}-{self.attempt}{f'-{self.token}' if self.token else ''}"


class CheckpointFolder:
    """The checkpoints below `folder`, for the only training that has them written.

    `newest` is the newest complete checkpoint. Opening removes incomplete files of dead attempts. Raises RuntimeError
    if the folder cannot be read, and OtherSchema if another version wrote everything in it: without these errors the
    training would begin anew.
    """

    def __init__(self, folder: Path, attempt: int, keys: CheckpointKeys | None = None) -> None:
        _check_readable(folder)
        _remove_leftovers(folder)
        self.newest = manifest.newest_complete(folder)
        if self.newest is None:
            manifest.refuse_other_schemas(folder)
        complete = manifest.with_older(self.newest) if self.newest else ()
        self._points = {each.step: Point(each.step, each.epoch, each.accuracy) for each in complete}
        self._folder, self._attempt = folder, attempt
        self._keys = keys or CheckpointKeys()

    @property
    def best(self) -> float:
        """The highest accuracy of a checkpoint; below 0 if none was evaluated."""
        return max((point.accuracy for point in self._points.values() if point.accuracy is not None), default=-1.0)

    def order(self, progress: Progress, epoch: float, accuracy: float | None = None) -> Order:
        """The order to write the state at `progress`, without its files."""
        points = {**self._points, progress.steps: Point(progress.steps, epoch, accuracy)}
        keep = sorted(kept(points.values(), self._keys) - {progress.steps}) if len(points) >= self._keys.last else None
        return Order(str(self._folder), self._attempt, progress.steps, progress.samples, epoch, accuracy, keep, {})

    def written(self, order: Order, files: dict[str, tuple[int, str]]) -> None:
        """Note that the last order of a checkpoint is done; its own files have these (bytes, SHA-256)."""
        files = {**order.written, **files}
        sizes_bytes = {name: size_bytes for name, (size_bytes, _) in files.items()}
        checksums = {name: sha256 for name, (_, sha256) in files.items()}
        path, counted = self._folder / order.name, (order.progress, order.epoch, self._attempt)
        self.newest = manifest.Checkpoint(path, *counted, sizes_bytes, checksums, order.accuracy)
        stay = self._points if order.keep is None else {step: self._points[step] for step in order.keep}
        self._points = {**stay, order.steps: Point(order.steps, order.epoch, order.accuracy)}

    def evaluated(self, steps: int, accuracy: float) -> bool:
        """Add its accuracy to the newest checkpoint; False if that has another number of steps.

        Its state is not written again, so it is complete all the time. Raises OSError.
        """
        newest = self.newest
        if newest is None or newest.step != steps:
            return False
        files = {name: (newest.sizes_bytes[name], sha256) for name, sha256 in newest.sha256.items()}
        listing = manifest.of_files(newest.progress, newest.epoch, newest.attempt, files, accuracy)
        put(newest.path / manifest.MANIFEST, json.dumps(listing).encode(), MODE)
        self.newest = replace(newest, accuracy=accuracy)
        self._points[steps] = Point(steps, newest.epoch, accuracy)
        return True

    def abandon(self, order: Order) -> None:
        """Delete the files of a checkpoint that some ranks could not write."""
        shutil.rmtree(self._folder / order.temporary, ignore_errors=True)


def write(order: Order, memory: memoryview, between: Callable[[], None] = lambda: None) -> dict[str, tuple[int, str]]:
    """Write files from the shared `memory`; returns their (bytes, SHA-256).

    The last order completes it and deletes the older checkpoints that do not stay. `between` is called between blocks.
    Raises OSError if nothing was added (disk full, quota, ...): the last order removes the temporary folder then.
    """
    folder, temporary = Path(order.folder), order.temporary
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with opened(folder) as below:
        if below.status(temporary) and not below.is_folder(temporary):
            below.remove_one(temporary)  # a link of somebody else
        try:
            with below.folder(temporary, BY_UMASK) as inner:
                files = _write_files(inner, order, memory, between)
                if order.last:
                    _write_manifest(inner, order, {**order.written, **files})
                os.fsync(inner.descriptor)
            if order.last:
                _put_in_place(folder / temporary, folder / order.name)
        except OSError:
            with suppress(OSError):
                if order.last:  # else other ranks still write, and `abandon` follows
                    below.remove(temporary)
            raise
    if order.last:
        _prune(folder, order)
    return files


def _write_files(
    temporary: Below, order: Order, memory: memoryview, between: Callable[[], None]
) -> dict[str, tuple[int, str]]:
    """Write the files of an order; returns their (bytes, SHA-256)."""
    files = {}
    for name, parts in order.files.items():
        with temporary.unfinished(name, f".tmp-{name}", MODE) as file:
            sha256 = _copy((memory[begin : begin + length] for begin, length in parts), file, between)
            sync(file)
        files[name] = sum(length for _, length in parts), sha256
    return files


def _write_manifest(temporary: Below, order: Order, files: dict[str, tuple[int, str]]) -> None:
    listing = manifest.of_files(order.progress, order.epoch, order.attempt, files, order.accuracy)
    with temporary.unfinished(manifest.MANIFEST, f".tmp-{manifest.MANIFEST}", MODE) as file:
        file.write(json.dumps(listing).encode())
        sync(file)


def _copy(parts: Iterable[memoryview], file: IO[bytes], between: Callable[[], None]) -> str:
    """Write all `parts`; returns their checksum together."""
    digest = hashlib.sha256()
    for part in parts:
        for begin in range(0, len(part), BLOCK_BYTES):
            block = part[begin : begin + BLOCK_BYTES]
            digest.update(block)
            file.write(block)
            between()
    return digest.hexdigest()


def _prune(folder: Path, order: Order) -> None:
    """Delete the older checkpoints that do not stay; a failed deletion is tried again next time.

    A checkpoint with a locked state stays, too: a role of the run judges it (orchestrator/run/folder/judged.py).
    """
    if order.keep is None:
        return
    for path in manifest.candidates(folder):
        step = manifest.step_of(path.name) or 0
        if step < order.steps and step not in order.keep:
            with suppress(OSError), lock.held(path / STATE, wait_s=0.0) as free:
                if free is not False:
                    discard(path)


def _check_readable(folder: Path) -> None:
    try:
        os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RuntimeError(f"{folder}: cannot be read: {error.strerror}; fix that and resume the run") from error


def _remove_leftovers(folder: Path) -> None:
    """Delete the half-written and half-deleted checkpoints of dead attempts."""
    with suppress(OSError), opened(folder) as below:
        for path in folder.glob(f"{manifest.TEMPORARY_PREFIX}*step-*"):
            with suppress(OSError):
                below.remove(path.name)


def _put_in_place(temporary: Path, final: Path) -> None:
    """Give a checkpoint its name. A folder with this name is incomplete, or the run would have resumed from it."""
    replaced = _renamed_away(final) if os.path.lexists(final) else None
    temporary.rename(final)
    sync_folder(final.parent)
    if replaced:
        shutil.rmtree(replaced, ignore_errors=True)


def discard(path: Path) -> Path:
    """Delete a checkpoint. It is renamed first: a death in between must not leave a checkpoint that lacks files.

    Returns its last name, which exists if a part of it could not be deleted. Raises OSError if it cannot be renamed.
    """
    renamed = _renamed_away(path)
    shutil.rmtree(renamed, ignore_errors=True)
    return renamed


def _renamed_away(path: Path) -> Path:
    return path.rename(path.with_name(f"{manifest.TEMPORARY_PREFIX}old-{path.name}"))
