"""Copies files of a run to a new folder, which appears wholly or not at all: all logs and metrics with the account of
the run and its verified checkpoints, or what patterns choose. A copy that was interrupted continues.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.folder import patterns
from torusrun.orchestrator.folder.checkpoints import finished
from torusrun.orchestrator.folder.copying import Say, Wanted, copy_folder, folder_mode, keep_only
from torusrun.orchestrator.folder.patterns import OF_CHECKPOINTS, Pattern
from torusrun.orchestrator.folder.run_folder import RunFolder
from torusrun.orchestrator.runs.state.account import read_account
from torusrun.orchestrator.runs.state.view import read_record
from torusrun.orchestrator.spec.paths import absolute
from torusrun.training.checkpoint.manifest import IncompleteCheckpoint, candidates, verify

LEFT_BEHIND = (OF_CHECKPOINTS, "submitit")
ACCOUNT = "account.json"  # where the time of the run went, in its copy
PARTIAL = ".torusrun-part-"  # begins the name of a folder with what was copied so far


def collect(
    run: RunFolder,
    into: Path,
    checkpoints: str,
    say: Say = lambda text: None,
    only: Sequence[Pattern] = (),
    *,
    continues: bool = True,
) -> Path:
    """Copy a run into the new folder `into`, with "newest", "all" or "none" of its complete `checkpoints`.

    The copy has the account of the run, by its records alone. With `only`, it has the files that these patterns choose
    instead. Only regular files and folders are copied: `say` gets a sentence about everything else. Raises UserError if
    `into` exists or the patterns choose nothing, SiteError if the copy fails: the same call then continues, unless
    `continues` is False.
    """
    with collecting(into, run.run_id if continues else "") as partial:
        copied = copy_chosen(run, partial, only, say) if only else _copy_all(run, partial, checkpoints, say)
        keep_only(partial, copied)
    return absolute(into)


@contextmanager
def collecting(into: Path, of: str) -> Iterator[Path]:
    """A folder that becomes `into` at the end of the context.

    After an error it stays if it has files: the next call for the same `into` and `of`, a run's id, gets it again. It
    does not stay if `of` is ''. Raises UserError if `into` exists, SiteError for an OSError.
    """
    into = absolute(into)
    if os.path.lexists(into):
        raise UserError(f"{into} exists already; name a new folder")
    with not_copied(f"{into}: the run could not be collected"), partial_copy(into, of) as partial:
        yield partial
        _give_name(partial, into)


@contextmanager
def not_copied(what: str) -> Iterator[None]:
    """Within, an OSError becomes a SiteError with this sentence, the file and the reason."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SiteError(f"{what}: {where}{error.strerror}") from None


@contextmanager
def partial_copy(into: Path, of: str) -> Iterator[Path]:
    """A folder next to `into` with the files copied so far, as in `collecting`. The caller renames or removes it."""
    name = hashlib.sha256(f"{of}\n{into.name}".encode(errors="surrogateescape")).hexdigest()[:16]
    partial = into.with_name(f"{PARTIAL}{name}")
    into.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        partial.mkdir(mode=0o700)
    if partial.is_symlink() or not partial.is_dir() or not private.is_mine(partial):
        raise SiteError(f"{partial} exists and is not a folder of yours; choose another place")
    try:
        yield partial
    except BaseException as error:
        if not of or not any(path.is_file() for path in partial.rglob("*")):
            shutil.rmtree(partial, ignore_errors=True)
        elif not isinstance(error, UserError):
            warn(f"{partial} has what was copied so far: the same command continues")
        raise


def copy_chosen(run: RunFolder, into: Path, only: Sequence[Pattern], say: Say) -> set[Path]:
    """Copy the files of a run that these patterns choose; the copies. Raises UserError if there are none, OSError."""
    chosen, used = patterns.found_in(run, only), set[Pattern]()

    def wanted(path: str) -> bool:
        found = {pattern for pattern in chosen if pattern.chosen(path)}
        used.update(found)
        return bool(found)

    def wanted_elsewhere(path: str) -> bool:
        return path.partition("/")[0] != OF_CHECKPOINTS and wanted(path)

    copied = copy_folder(run.folder, into, (), say, wanted_elsewhere)
    copied |= _copy_chosen_checkpoints(run, into, wanted, say)
    unused = [pattern.text for pattern in chosen if pattern not in used]
    if len(unused) == len(chosen):
        raise UserError(f"{run.run_id} has no file {' or '.join(unused)}; `ls {run.folder}` shows its files")
    for text in unused:
        say(f"{run.run_id} has no file {text}")
    return copied


def _copy_chosen_checkpoints(run: RunFolder, into: Path, wanted: Wanted, say: Say) -> set[Path]:
    """Copy wanted checkpoints, each verified, and other wanted files beside and in checkpoints."""
    if run.checkpoints.is_symlink() or not run.checkpoints.is_dir():
        return set()
    whole = [path for path in candidates(run.checkpoints) if wanted(f"{OF_CHECKPOINTS}/{path.name}")]
    target, new = into / OF_CHECKPOINTS, not (into / OF_CHECKPOINTS).exists()
    target.mkdir(mode=0o700, exist_ok=True)
    left = tuple(path.name for path in whole)
    copied = copy_folder(run.checkpoints, target, left, say, lambda path: wanted(f"{OF_CHECKPOINTS}/{path}"))
    for path in whole:
        copied |= _copied(path, target / path.name, say)
    if new:
        with suppress(OSError):
            target.rmdir()  # unless something was copied into it
    return copied


def _copy_all(run: RunFolder, partial: Path, checkpoints: str, say: Say) -> set[Path]:
    """Copy logs, metrics, records, and the `checkpoints` as in `collect`; the copies."""
    copied = copy_folder(run.folder, partial, LEFT_BEHIND, say)
    _write_account(run, partial, say)
    if checkpoints != "none":
        copied |= _copy_checkpoints(run, partial, checkpoints == "all", say)
    return copied | {partial / ACCOUNT}


def _write_account(run: RunFolder, partial: Path, say: Say) -> None:
    """Write the account of a run beside the copy of its ledger, for the same readers."""
    copied = partial / run.ledger.name
    if not copied.is_file():
        return
    state = read_record(run).status(None, time.time()).state
    try:
        write_json(partial / ACCOUNT, read_account(RunFolder(partial), state).as_json(), secret=True)
        (partial / ACCOUNT).chmod(stat.S_IMODE(copied.stat().st_mode))
    except SiteError as error:
        say(f"{error}: the account is left out")


def _copy_checkpoints(run: RunFolder, partial: Path, every: bool, say: Say) -> set[Path]:
    """Copy the newest complete checkpoint of a run, or `every` one, newest first; the copied files."""
    copied: set[Path] = set()
    if not os.path.lexists(run.checkpoints):
        return copied
    try:
        named = [] if run.checkpoints.is_symlink() else candidates(run.checkpoints)
    except OSError:
        named = []
    if not named and not run.checkpoints.is_dir():
        say(f"{run.checkpoints}: left out: this is not a folder")
    elif not named and not run.checkpoints.is_symlink():
        return _copy_foreign(run, partial / OF_CHECKPOINTS, every, say)
    for checkpoint in named:
        kept = partial / OF_CHECKPOINTS
        kept.mkdir(mode=0o700, exist_ok=True)
        kept.chmod(folder_mode(run.checkpoints.stat()))
        copied |= _copied(checkpoint, kept / checkpoint.name, say)
        if copied and not every:
            break
    return copied


def _copy_foreign(run: RunFolder, target: Path, every: bool, say: Say) -> set[Path]:
    """Copy the newest checkpoint of a command, or `every` one; the copied files. They cannot be verified."""
    found = finished(run.checkpoints)
    left = () if every else tuple(path.name for path in found[1:])
    if not found:
        return set()
    target.mkdir(mode=0o700, exist_ok=True)
    return copy_folder(run.checkpoints, target, left, say)


def _copied(checkpoint: Path, target: Path, say: Say) -> set[Path]:
    """Copy a checkpoint and verify the copy; the copied files, none if the checkpoint is incomplete."""
    try:
        if checkpoint.is_symlink():
            raise IncompleteCheckpoint(f"{checkpoint}: this is a symbolic link")
        verify(checkpoint)
        target.mkdir(mode=0o700, exist_ok=True)
        copied = copy_folder(checkpoint, target, (), say)
        verify(target)
    except IncompleteCheckpoint as error:
        say(f"{error}: the checkpoint is left out")
        shutil.rmtree(target, ignore_errors=True)
        return set()
    return copied


def _give_name(partial: Path, into: Path) -> None:
    """Rename a folder, never over another: an empty folder reserves the new name until the rename."""
    into.mkdir(mode=0o700)
    try:
        partial.rename(into)
    except BaseException:
        with suppress(OSError):
            into.rmdir()
        raise
