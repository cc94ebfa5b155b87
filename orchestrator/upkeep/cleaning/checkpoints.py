"""Checkpoints of runs that are over, beyond the newest ones and the best, and what killed writers left.

Those of torusrun's own format alone: of others nobody knows which is the best, or which belong together.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, TorusrunError, explained
from torusrun.orchestrator.run.attempts.cancel import is_unsure
from torusrun.orchestrator.run.folder import disk, index
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.upkeep.cleaning.garbage import Garbage
from torusrun.orchestrator.upkeep.remove import check_over
from torusrun.training.checkpoint.manifest import TEMPORARY_PREFIX, Checkpoint, IncompleteCheckpoint, candidates, verify
from torusrun.training.checkpoint.store import Point, discard, kept
from torusrun.training.counted import counted
from torusrun.training.recipe.train import CheckpointKeys


def beyond(views: Sequence[View], keep: int, before_s: float) -> Iterator[Garbage]:
    """The checkpoints of runs that ended before `before_s`, without the newest `keep` and the best of each run."""
    for run, ended_s in _over(views):
        found = _complete(run) if ended_s < before_s else []
        if surplus := _surplus(found, keep):
            size_bytes = sum(disk.of_path(one.path) for one in surplus)
            why = f"{len(surplus)} of {counted(len(found), 'checkpoint')} of {run.run_id}"
            remove = partial(_alone, run, partial(_discard_beyond, run, keep))
            yield Garbage("checkpoints", run.checkpoints, size_bytes, ended_s, why, remove)


def leftovers(views: Sequence[View], before_s: float) -> Iterator[Garbage]:
    """Checkpoints of runs that are over whose writers were killed, unchanged since `before_s`."""
    for run, _ in _over(views):
        for path in sorted(run.checkpoints.glob(f"{TEMPORARY_PREFIX}*step-*")):
            try:
                changed_s = path.lstat().st_mtime
            except FileNotFoundError:  # another process has just removed it
                continue
            if changed_s < before_s and path.is_dir() and not path.is_symlink():
                why = f"a half-written checkpoint of {run.run_id}"
                remove = partial(_alone, run, partial(_remove_leftover, path))
                yield Garbage("leftover", path, disk.of_path(path), changed_s, why, remove)


def _over(views: Sequence[View]) -> Iterator[tuple[RunFolder, float]]:
    """The user's runs that are over and have checkpoints in their folders, and when that was."""
    for view in views:
        run = RunFolder(Path(view.folder))
        if view.state.over and not run.checkpoints.is_symlink() and run.checkpoints.is_dir() and run.ledger.exists():
            try:
                index.own(run)
                if is_unsure(run, view):
                    continue
                ended_s = run.ledger.stat().st_mtime
            except (TorusrunError, OSError):  # such as: it has just been removed
                continue
            yield run, ended_s


def _complete(run: RunFolder) -> list[Checkpoint]:
    """The checkpoints whose files have the sizes in their manifests."""
    return [found for path in candidates(run.checkpoints) if (found := _verified(path, contents=False))]


def _verified(path: Path, *, contents: bool) -> Checkpoint | None:
    try:
        return None if path.is_symlink() else verify(path, contents)
    except IncompleteCheckpoint:
        return None


def _surplus(found: Sequence[Checkpoint], keep: int) -> list[Checkpoint]:
    points = [Point(one.step, one.epoch, one.accuracy) for one in found]
    stay = kept(points, CheckpointKeys(last=keep, best=True))
    return [one for one in found if one.step not in stay]


def _discard_beyond(run: RunFolder, keep: int) -> None:
    """Delete the checkpoints that do not stay. Those that stay are read first: a damaged one does not count."""
    found, sound = _complete(run), set[int]()
    while True:
        surplus = {one.step for one in _surplus(found, keep)}
        unread = [one for one in found if one.step not in surplus | sound]
        damaged = {one.step for one in unread if not _verified(one.path, contents=True)}
        sound |= {one.step for one in unread} - damaged
        if not damaged:
            break
        found = [one for one in found if one.step not in damaged]
    for one in found:
        if one.step in surplus:
            with explained(f"{one.path}: cannot be removed"):
                left = discard(one.path)
            _check_gone(left)


def _remove_leftover(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _check_gone(path)


def _check_gone(path: Path) -> None:
    if path.exists():
        raise SiteError(f"{path}: this could not be removed completely; see its permissions, and remove it by hand")


def _alone(run: RunFolder, act: Callable[[], object]) -> None:
    """Act on a run while nobody resumes it. Raises UserError if it is not over."""
    with alone(run):
        check_over(run, look(run))
        act()
