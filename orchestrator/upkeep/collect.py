"""Copies files of a run to a new folder, which appears wholly or not at all.

The files are all logs and metrics with verified checkpoints, or what patterns choose. An interrupted copy continues.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.folder import patterns
from torusrun.orchestrator.run.folder.checkpoints import finished
from torusrun.orchestrator.run.folder.copying import Say, Wanted, copy_folder, folder_mode, keep_only
from torusrun.orchestrator.run.folder.patterns import OF_CHECKPOINTS, Pattern
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.checkpoint.manifest import IncompleteCheckpoint, candidates, verify
from torusrun.training.files.below import Below, opened

LEFT_BEHIND = (OF_CHECKPOINTS, "submitit")
PARTIAL = ".torusrun-part-"  # begins the name of a folder with what was copied so far


def collect(
    run: RunFolder, into: Path, checkpoints: str, say: Say = lambda text: None, only: Sequence[Pattern] = ()
) -> Path:
    """Copy a run into the new folder `into`, with "newest", "all" or "none" of its complete `checkpoints`.

    With `only`, the copy has the files that these patterns choose instead. Only regular files and folders are copied:
    `say` gets a sentence about everything else. Raises UserError if `into` exists or the patterns choose nothing,
    SiteError if the copy fails: the same call then continues.
    """
    with collecting(into, run.run_id) as partial:
        copied = _copy_chosen(run, partial, only, say) if only else _copy_all(run, partial, checkpoints, say)
        keep_only(partial, copied)
    return absolute(into)


@contextmanager
def collecting(into: Path, of: str) -> Iterator[Below]:
    """A folder that becomes `into` at the end of the context.

    After an error it stays if it has files: the next call for the same `into` and `of`, a run's id, gets it again.
    Raises UserError if `into` exists, SiteError for an OSError or if strangers may replace files beside `into`.
    """
    into = absolute(into)
    if os.path.lexists(into):
        raise UserError(f"{into} exists already; name a new folder")
    try:
        with private.trusted(into.parent) as beside, _partial_copy(beside, into.name, of) as partial:
            yield partial
            _give_name(beside, partial, into.name)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SiteError(f"{into}: the run could not be collected: {where}{error.strerror}") from None


@contextmanager
def _partial_copy(beside: Below, name: str, of: str) -> Iterator[Below]:
    """A folder in `beside` with the files copied so far for `name`, as in `collecting`; the caller renames it."""
    digest = hashlib.sha256(f"{of}\n{name}".encode(errors="surrogateescape")).hexdigest()[:16]
    with beside.folder(part := f"{PARTIAL}{digest}", stat.S_IRWXU) as partial:
        try:
            yield partial
        except BaseException as error:
            if all(is_folder for _, is_folder in partial.entries()):
                with suppress(OSError):
                    beside.remove(part)
            elif not isinstance(error, UserError):
                warn(f"{partial.path} has what was copied so far: the same command continues")
            raise


def _copy_chosen(run: RunFolder, into: Below, only: Sequence[Pattern], say: Say) -> set[str]:
    """Copy the files of a run that these patterns choose; the copies. Raises UserError if there are none, OSError."""
    chosen, used = [patterns.meant(run, pattern) for pattern in only], set[Pattern]()

    def wanted(path: str) -> bool:
        matching = {pattern for pattern in chosen if pattern.chosen(path)}
        used.update(matching)
        return bool(matching)

    def wanted_elsewhere(path: str) -> bool:
        return path.partition("/")[0] != OF_CHECKPOINTS and wanted(path)

    with opened(run.folder, foreign=True) as source:
        copied = copy_folder(source, into, (), say, wanted_elsewhere)
        copied |= _copy_chosen_checkpoints(run, source, into, wanted, say)
    unused = [pattern.text for pattern in chosen if pattern not in used]
    if len(unused) == len(chosen):
        raise UserError(f"{run.run_id} has no file {' or '.join(unused)}; `ls {run.folder}` shows its files")
    for text in unused:
        say(f"{run.run_id} has no file {text}")
    if not copied:
        raise UserError(f"{run.run_id}: nothing of {', '.join(pattern.text for pattern in only)} can be copied")
    return copied


def _copy_chosen_checkpoints(run: RunFolder, source: Below, into: Below, wanted: Wanted, say: Say) -> set[str]:
    """Copy wanted checkpoints, each verified, and other wanted files beside and in checkpoints."""
    if not source.is_folder(OF_CHECKPOINTS):
        return set()
    whole = [path for path in candidates(run.checkpoints) if wanted(f"{OF_CHECKPOINTS}/{path.name}")]
    new = into.status(OF_CHECKPOINTS) is None
    left = tuple(path.name for path in whole)
    copied = _copy_below(source, into, OF_CHECKPOINTS, left, say, lambda path: wanted(f"{OF_CHECKPOINTS}/{path}"))
    for path in whole:
        copied |= _copied(path, source, into, say)
    if new:
        with suppress(OSError):
            into.remove_one(OF_CHECKPOINTS)  # unless something was copied into it
    return copied


def _copy_below(
    source: Below, into: Below, name: str, left: Collection[str], say: Say, wanted: Wanted = lambda path: True
) -> set[str]:
    """Copy the folder `name`, which `into` may have already; the copied files."""
    with source.folder(name) as inner, into.folder(name, stat.S_IRWXU) as target:
        return {f"{name}/{path}" for path in copy_folder(inner, target, left, say, wanted)}


def _copy_all(run: RunFolder, partial: Below, checkpoints: str, say: Say) -> set[str]:
    """Copy logs, metrics, records, and the `checkpoints` as in `collect`; the copies."""
    with opened(run.folder, foreign=True) as source:
        copied = copy_folder(source, partial, LEFT_BEHIND, say)
        if checkpoints != "none":
            copied |= _copy_checkpoints(run, source, partial, checkpoints == "all", say)
    return copied


def _copy_checkpoints(run: RunFolder, source: Below, partial: Below, every: bool, say: Say) -> set[str]:
    """Copy the newest complete checkpoint of a run, or `every` checkpoint, newest first; the copied files."""
    copied: set[str] = set()
    if source.status(OF_CHECKPOINTS) is None:
        return copied
    if not source.is_folder(OF_CHECKPOINTS):
        say(f"{run.checkpoints}: left out: this is not a folder")
        return copied
    named = candidates(run.checkpoints)
    if not named:  # those of a command, which cannot be verified
        saved = finished(run.checkpoints)
        left = () if every else tuple(path.name for path in saved[1:])
        return _copy_below(source, partial, OF_CHECKPOINTS, left, say) if saved else copied
    for checkpoint in named:
        copied |= _copied(checkpoint, source, partial, say)
        if copied and not every:
            break
    return copied


def _copied(checkpoint: Path, source: Below, into: Below, say: Say) -> set[str]:
    """Copy a checkpoint and verify the copy; the copied files, none if the checkpoint is incomplete."""
    name = f"{OF_CHECKPOINTS}/{checkpoint.name}"
    try:
        if not source.is_folder(name):
            raise IncompleteCheckpoint(f"{checkpoint}: this is a symbolic link, or no folder")
        verify(checkpoint)
        with source.folder(OF_CHECKPOINTS) as kept:
            mode = folder_mode(os.fstat(kept.descriptor))
        with into.folder(OF_CHECKPOINTS, mode) as kept:
            os.fchmod(kept.descriptor, mode)
        copied = _copy_below(source, into, name, (), say)
        verify(into.path / name)
    except IncompleteCheckpoint as error:
        say(f"{error}: the checkpoint is left out")
        with suppress(OSError):
            into.remove(name)
        return set()
    return copied


def _give_name(beside: Below, partial: Below, name: str) -> None:
    """Rename a folder, never over another: an empty folder reserves the new name until the rename."""
    os.mkdir(name, 0o700, dir_fd=beside.descriptor)
    try:
        beside.move(partial.path.name, name)
    except BaseException:
        with suppress(OSError):
            beside.remove_one(name)
        raise
    status = beside.status(name)
    if status is None or not os.path.samestat(status, os.fstat(partial.descriptor)):
        raise OSError(errno.EPERM, "somebody has put another folder into its place", name)
