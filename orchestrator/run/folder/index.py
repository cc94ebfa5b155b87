"""The index of this user's runs: one symbolic link per run, made before the run's folder. Safe to delete.

A client that is killed while it makes a run leaves a dangling link, and at most the unfinished folder beside the place
of the run. `runs` removes both unless a client holds the lock. The kernel releases the lock when the client ends.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torusrun.orchestrator.base import lock, private
from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.base.strangers import objection
from torusrun.orchestrator.keys.paths import expanded, state_folder
from torusrun.orchestrator.run.folder import settled
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.counted import counted
from torusrun.training.recipe.near import did_you_mean

LOCK_S = 10.0  # a process that removes runs holds the lock briefly, unless it was stopped
YOUNG_S = 120.0  # a younger link stays; NFS caches for up to 60 s that a file does not exist (nfs(5), acdirmax)
COUNTED_BACK = re.compile(r"([^/]+?)~(\d{1,6})")
MOST_NAMED = 8  # runs in an error
ANYBODY = -1  # no user has this number
PARTS = ("plan.json", "ledger.jsonl", "attempts")  # any of these makes a folder a run's, damaged or not


def place() -> Path:
    """The folder of links. Raises UserError without a home folder."""
    return state_folder() / "runs"


@contextmanager
def announced(*runs: RunFolder) -> Iterator[None]:
    """Add runs to the index; the context makes their folders. Raises SiteError if the index cannot be written."""
    private.make(place())
    with _locked(LOCK_S, shared=True):
        with explained(f"{place()}: the run cannot be written into this list"):
            for run in runs:
                (place() / run.run_id).symlink_to(run.folder)
        yield


def forget(run: RunFolder) -> None:
    """Remove a run that is not at work. It is renamed first, so that a part of it never looks like a run."""
    with contextlib.suppress(OSError):
        run.folder.rename(run.removed)
    _remove(run.removed)
    if run.removed.exists():
        return
    if run.sweep and not any(run.sweep.glob(f"*{run.sweep.name}.*")):  # it was the last member
        _remove(run.sweep)
    if made_ns(run) is not None:  # else the link names another run, of which this folder is a copy
        (place() / run.run_id).unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def forget_sweep(members: Sequence[RunFolder]) -> None:
    """Remove a sweep of which nothing was submitted, with all its members. It is renamed first, as in `forget`."""
    folder = members[0].folder.parent
    unfinished = members[0].unfinished.parent
    with contextlib.suppress(OSError):
        folder.rename(unfinished)
    _remove(unfinished)
    if not unfinished.exists():
        for run in members:
            (place() / run.run_id).unlink(missing_ok=True)


def runs() -> list[RunFolder]:
    """This user's runs, oldest first, damaged or not. Runs whose folders are gone are left out, and cleaned up.

    For runs that are known to be over (settled.py), it does not check whether the folder exists.
    """
    known = settled.runs()
    dated: list[tuple[int, RunFolder]] = []
    gone: list[RunFolder] = []
    for link in _links():
        if row := known.get(link.name):
            dated.append((int(row.made_ns), RunFolder(Path(row.folder))))
            continue
        try:
            run, made = RunFolder(Path(os.readlink(link))), link.stat(follow_symlinks=False).st_mtime_ns
        except FileNotFoundError:  # another process has removed the link meanwhile
            continue
        if is_gone(run):
            gone.append(run)
        else:
            dated.append((made, run))
    _clean(gone)
    return [run for _, run in sorted(dated, key=lambda made: (made[0], len(made[1].run_id), made[1].run_id))]


def made_ns(run: RunFolder) -> int | None:
    """When a run was made (of its link, in ns); None for a folder that the index does not name."""
    try:
        link = place() / run.run_id
        return link.lstat().st_mtime_ns if os.readlink(link) == str(run.folder) else None
    except (OSError, UserError):  # without a home folder the user has no index
        return None


def _links() -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place()) as entries:
            return [entry for entry in entries if entry.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SiteError(f"{place()}: the list of your runs cannot be read: {error.strerror}") from None


def find(word: str, known: Sequence[RunFolder] | None = None) -> RunFolder:
    """The run that `word` names: an id, its beginning, 'last', or, with a slash, a folder; `known` are all runs.

    'mine~1' is the run before the newest of those whose ids begin so, 'mine~0' the newest.
    A word without a slash never names a folder: another user could have made it in the working directory.
    Raises UserError if no run or several runs match.
    """
    if "/" in word:
        return _folder(word)
    if not word:
        raise UserError("the id of the run is empty")
    known = runs() if known is None else known
    if counted_back := COUNTED_BACK.fullmatch(word):
        return _back(counted_back[1], int(counted_back[2]), known)
    named = known if word == "last" else [run for run in known if _is_meant(run, word)]
    exact = [run for run in named if run.run_id == word]
    matching = existing(exact or named, 1 if word == "last" else MOST_NAMED + 1)
    if len(matching) == 1:
        return matching[0]
    if matching:
        more = "..., " if len(matching) > MOST_NAMED else ""
        some = ", ".join(run.run_id for run in matching[-MOST_NAMED:])
        if matching[0].sweep and all(run.sweep == matching[0].sweep for run in named):
            raise UserError(f"{word!r} is a sweep: name one of its members: {more}{some}")
        raise UserError(f"{word!r} begins the ids of {len(named)} runs: {more}{some}; {word}~0 is the newest")
    if {*"*?["} & {*word}:
        raise UserError(f"{word!r}: this takes one run and no pattern; `torusrun status {word!r}` lists them")
    hint = did_you_mean(word, [run.run_id for run in known])
    raise UserError(f"there is no run {word!r}{hint}; `torusrun status` lists your runs (write ./{word} for a folder)")


def _back(word: str, back: int, known: Sequence[RunFolder]) -> RunFolder:
    """The run that is `back` runs older than the newest of those that `word` begins, or of all for 'last'."""
    matching = existing(known if word == "last" else [run for run in known if _is_meant(run, word)], back + 1)
    if len(matching) > back:
        return matching[0]
    begin = "you have" if word == "last" else f"{word!r} begins the ids of"
    raise UserError(f"{word}~{back}: {begin} {counted(len(matching), 'run')}; `torusrun status` lists your runs")


def _is_meant(run: RunFolder, word: str) -> bool:
    """Whether a run's id is, or begins with, this word. The id of a member that was removed names no other member."""
    beyond_sweep = run.sweep and len(word) > len(run.sweep.name)  # SWEEP.1 is not SWEEP.10
    return run.run_id == word or (run.run_id.startswith(word) and not beyond_sweep)


def existing(named: Sequence[RunFolder], most: int | None = None) -> list[RunFolder]:
    """The newest `most` of these runs, by default all, without those that are over and whose folders are gone."""
    known = settled.runs()
    newest: list[RunFolder] = []
    gone: list[str] = []
    for run in reversed(named):
        if len(newest) == most:
            break
        if run.run_id in known and is_gone(run):
            gone.append(run.run_id)
        else:
            newest.append(run)
    settled.forget(gone)
    return newest[::-1]


def own(run: RunFolder) -> None:
    """Raise UserError unless the run belongs to the user of this process: another user's run is never acted on."""
    with explained(f"{run.folder}: cannot be read"):
        user, others = run.folder.stat().st_uid, _replaceable(run)
    if user != os.geteuid():
        raise UserError(f"{run.folder}: this run belongs to user {user}; you can only look at it")
    if others:
        raise UserError(f"{others}; you can only look at the run there")


def owner(run: RunFolder) -> int | None:
    """The user id of the folder's owner; ANYBODY if it is ours but others can replace it; None if it is unreadable."""
    try:
        user = run.folder.stat().st_uid
        return ANYBODY if user == os.geteuid() and _replaceable(run) else user
    except OSError:
        return None


def _replaceable(run: RunFolder) -> str:
    """How another user could replace the run's folder; '' if nobody can. Raises OSError.

    A check of the owner is not enough: the other user could show a run of ours first, and then another one.
    """
    return "" if made_ns(run) is not None else objection(str(run.folder))  # runs in the index were checked when made


def _folder(word: str) -> RunFolder:
    try:
        folder = expanded(word).resolve()
        if any(os.path.lexists(folder / part) for part in PARTS):
            return RunFolder(folder)
        os.scandir(folder).close()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{word}: this run folder cannot be read: {reason}") from None
    raise UserError(f"{word}: this is not a run folder (it has none of {', '.join(PARTS)})")


def is_gone(run: RunFolder) -> bool:
    """Whether the folder certainly does not exist; False if its file system gives another error."""
    try:
        run.folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _clean(gone: list[RunFolder]) -> None:
    """Remove the remains of runs that killed clients left, unless a client is just making a run."""
    removable = [run for run in gone if (run.sweep or run.folder).parent.is_dir()]
    if not removable:
        return
    with contextlib.suppress(SiteError, OSError), _locked(0.0):
        for run in filter(_is_long_gone, removable):
            unmade_sweep = run.sweep and not os.path.lexists(run.sweep)  # never finished, or removed
            remains = run.unfinished.parent if unmade_sweep else run.removed
            if private.is_mine(remains) or not os.path.lexists(remains):
                forget_sweep([run]) if unmade_sweep else forget(run)


def _is_long_gone(run: RunFolder) -> bool:
    """Whether a run is gone, and was not just made by another login node: NFS caches that its folder does not exist.

    Both times are the file server's. Raises OSError.
    """
    lock_file = place().with_name("lock")
    os.utime(lock_file)
    young = lock_file.stat().st_mtime_ns - (place() / run.run_id).lstat().st_mtime_ns < YOUNG_S * 1e9
    folder = run.sweep if run.sweep and not os.path.lexists(run.sweep) else run.folder
    return not young and is_gone(run) and folder.name not in os.listdir(folder.parent)


@contextmanager
def _locked(wait_s: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of the index. Raises SiteError if it cannot be held exclusively.

    A shared holder continues without the lock: on a file system without locks nothing is cleaned.
    """
    with lock.held(place().with_name("lock"), shared=shared, wait_s=wait_s) as mine:
        if not mine and not shared:
            raise SiteError(f"{place()}: another process works on this list, or its file system has no locks")
        yield
