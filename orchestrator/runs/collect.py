"""Copies logs, metrics and verified checkpoints of a run to a new folder with its account, wholly or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.base.errors import SiteError, UserError
from orchestrator.base.json_files import write_json
from orchestrator.runs.folder.checkpoints import finished
from orchestrator.runs.folder.copying import Say, copy_folder, folder_mode
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.account import read_account
from orchestrator.runs.state.view import read_record
from orchestrator.spec.paths import absolute
from training.checkpoint.manifest import IncompleteCheckpoint, candidates, verify

LEFT_BEHIND = ("checkpoints", "submitit")
ACCOUNT = "account.json"  # where the time of the run went, in its copy


def collect(run: RunFolder, into: Path, checkpoints: str, say: Say = lambda text: None) -> Path:
    """Copy a run into the new folder `into`, with "newest", "all" or "none" of its complete `checkpoints`.

    The copy has the account of the run, by its records alone. Only regular files and folders are copied: `say` gets a
    sentence about everything else. Raises UserError if `into` exists, SiteError if the copy fails.
    """
    with collecting(into) as partial:
        copy_folder(run.folder, partial, LEFT_BEHIND, say)
        _write_account(run, partial, say)
        if checkpoints != "none":
            _copy_checkpoints(run, partial, checkpoints == "all", say)
    return absolute(into)


@contextmanager
def collecting(into: Path) -> Iterator[Path]:
    """A temporary folder that becomes `into` at the end of the context; after an error it is removed.

    Raises UserError if `into` exists, SiteError for an OSError.
    """
    into = absolute(into)
    if os.path.lexists(into):
        raise UserError(f"{into} exists already; name a new folder")
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".torusrun-", dir=into.parent))
        try:
            yield partial
            _give_name(partial, into)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SiteError(f"{into}: the run could not be collected: {where}{error.strerror}") from None


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


def _copy_checkpoints(run: RunFolder, partial: Path, every: bool, say: Say) -> None:
    """Copy the newest complete checkpoint of a run, or `every` one, newest first."""
    if not os.path.lexists(run.checkpoints):
        return
    try:
        named = [] if run.checkpoints.is_symlink() else candidates(run.checkpoints)
    except OSError:
        named = []
    if not named and not run.checkpoints.is_dir():
        say(f"{run.checkpoints}: left out: this is no folder")
    elif not named and not run.checkpoints.is_symlink():
        _copy_foreign(run, partial / "checkpoints", every, say)
    for checkpoint in named:
        kept = partial / "checkpoints"
        kept.mkdir(mode=0o700, exist_ok=True)
        kept.chmod(folder_mode(run.checkpoints.stat()))
        if _copied(checkpoint, kept / checkpoint.name, say) and not every:
            return


def _copy_foreign(run: RunFolder, target: Path, every: bool, say: Say) -> None:
    """Copy the newest checkpoint of a command, or `every` one. They cannot be verified."""
    found = finished(run.checkpoints)
    left = () if every else tuple(path.name for path in found[1:])
    if found:
        target.mkdir(mode=0o700, exist_ok=True)
        copy_folder(run.checkpoints, target, left, say)


def _copied(checkpoint: Path, target: Path, say: Say) -> bool:
    """Copy a checkpoint and verify the copy; False if the checkpoint is incomplete."""
    try:
        if checkpoint.is_symlink():
            raise IncompleteCheckpoint(f"{checkpoint}: this is a symbolic link")
        verify(checkpoint)
        target.mkdir(mode=0o700)
        copy_folder(checkpoint, target, (), say)
        verify(target)
    except IncompleteCheckpoint as error:
        say(f"{error}: the checkpoint is left out")
        shutil.rmtree(target, ignore_errors=True)
        return False
    return True


def _give_name(partial: Path, into: Path) -> None:
    """Rename a folder, never over another: an empty folder reserves the new name until the rename."""
    into.mkdir(mode=0o700)
    try:
        partial.rename(into)
    except OSError:
        into.rmdir()
        raise
