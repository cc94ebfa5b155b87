"""The copies on a node's own disk: which are whole, who reads them, and which go when room is needed.

Every step is taken under the folder's lock, except the copying itself. A copy in progress and a copy that is read are
locked by their processes, so that what killed processes left is known by its free lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.staging.order import StageEntry
from torusrun.orchestrator.job.staging.stream import TOP, walk
from torusrun.training.files import lock
from torusrun.training.files.staged import PATHS, READY
from torusrun.training.files.trusted import make_own_folder, open_folder, open_regular, own_folder, sha256_of

UNREAD_S = 86_400.0  # a copy that nobody has read for so long goes
SPARE_BYTES = 1 << 30  # stay free beside the copies
LARGEST_RECORD_BYTES = 64 * 1024
NOT_FACTS = "__pycache__"  # a Python writes into these as it imports from the copy
BOOT = Path("/proc/sys/kernel/random/boot_id")
SCRATCH, ELSE = "TORUSRUN_SCRATCH", "/tmp"
MEND = (
    "set 'stage' of the site to a folder that only the job uses, such as $TORUSRUN_SCRATCH if the "
    "scheduler sets it, or ask for this one to be removed"
)


def place(folder: str, inherited: Mapping[str, str]) -> Path:
    """This user's folder below the `folder` of a site, '' for the default. Raises SiteError for an unset variable."""
    named = os.path.expanduser(folder or inherited.get(SCRATCH) or ELSE)
    expanded = re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda name: inherited.get(name[1] or name[2]) or name[0], named)
    if "$" in expanded:
        raise SiteError(f"'stage' {folder!r} names a variable that is not set on {socket.gethostname()}")
    return own_folder(expanded)


class NodeFolder:
    """This user's copies on this node. The copies that this process uses stay until `held` is closed."""

    def __init__(self, path: Path, held: ExitStack) -> None:
        self.path, self._held = path, held
        _make(path)
        with self._locked():
            for left in path.glob(".*"):
                if _alone(left):
                    _remove(left)
            self._clear(lambda read_s: time.time() - read_s > UNREAD_S)

    def copy(self, name: str, sha256: str, attempt: str) -> Path | None:
        """The whole copy `name`, for this process to read; None without such a copy.

        The content of a copy with a SHA-256 is read once in an attempt; any other is known by its files' facts.
        """
        with self._locked():
            return self._whole(name, sha256, attempt)

    def awaited(self, name: str) -> None:
        """Wait until no other process makes the copy `name`."""
        for path in self.path.glob(f".{name}.*"):
            with suppress(OSError):
                descriptor = open_folder(path)
                lock.take(descriptor, shared=True)
                os.close(descriptor)

    @contextmanager
    def partial(self, name: str, needed_bytes: int) -> Iterator[Path]:
        """A new folder for the copy `name`, which needs so many bytes. Raises SiteError if there is no room for it.

        The folder is removed at the end, with what `keep` has left in it.
        """
        path = self.path / f".{name}.{secrets.token_hex(4)}"
        with self._locked():
            self._make_room(needed_bytes)
            path.mkdir(mode=0o700)
            mine = open_folder(path)
            lock.take(mine)
        try:
            yield path
        finally:
            os.close(mine)
            _remove(path)

    def keep(self, partial: Path, name: str, sha256: str, attempt: str) -> Path:
        """Give the complete copy in `partial` its name, unless another process was faster; the copy."""
        with self._locked():
            if whole := self._whole(name, sha256, attempt):
                return whole
            copy = self.path / name
            if os.path.lexists(copy) and not _alone(copy):  # somebody still reads what was changed
                copy = self.path / f"{name}-{secrets.token_hex(4)}"
            _remove(copy)
            os.rename(partial / TOP, copy)
            self._record(copy, attempt)
            return self._read(copy)

    def linked(self, run: str, copies: Sequence[tuple[StageEntry, Path]]) -> None:
        """The folder of a run, with a link to each copy, and paths.json: the copies by their sources."""
        with self._locked():
            folder = run_folder(self.path, run)
            folder.mkdir(mode=0o700, exist_ok=True)
            hold(folder, self._held)
            for left in folder.iterdir():
                left.unlink()
            for entry, copy in copies:
                if entry.name:
                    (folder / entry.name).symlink_to(Path("..") / copy.name)
            paths = {path: str(copy) for entry, copy in copies for path in (entry.path, os.path.realpath(entry.path))}
            private.write_bytes(folder / PATHS, json.dumps(paths).encode())

    def ready(self, run: str, attempt: str) -> None:
        """Let the other ranks of this host begin."""
        private.write_bytes(run_folder(self.path, run) / READY, attempt.encode())

    def _locked(self) -> AbstractContextManager[bool | None]:
        return lock.held(self.path / "lock")

    def _whole(self, name: str, sha256: str, attempt: str) -> Path | None:
        copy = self.path / name
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            known = json.loads(private.read_bytes(_record_of(copy), LARGEST_RECORD_BYTES))
            if known["facts"] != _facts(copy):
                return None
            if sha256 and known["attempt"] != attempt:
                if sha256_of(copy) != sha256:
                    return None
                self._record(copy, attempt)
            return self._read(copy)
        return None

    def _record(self, copy: Path, attempt: str) -> None:
        private.write_bytes(_record_of(copy), json.dumps({"facts": _facts(copy), "attempt": attempt}).encode())

    def _read(self, copy: Path) -> Path:
        """Mark a copy as read by this process."""
        hold(copy, self._held)
        with suppress(OSError):
            os.utime(_record_of(copy))
        return copy

    def _make_room(self, needed_bytes: int) -> None:
        wanted = needed_bytes + SPARE_BYTES
        self._clear(lambda read_s: shutil.disk_usage(self.path).free < wanted)
        if (free := shutil.disk_usage(self.path).free) < wanted:
            raise SiteError(
                f"{self.path} on {socket.gethostname()} has {free / 1e9:.1f} GB free, and the copy needs "
                f"{needed_bytes / 1e9:.1f} GB and {SPARE_BYTES / 1e9:.1f} GB to spare; name a larger disk as 'stage' "
                f"of the site, or stage less"
            )

    def _clear(self, goes: Callable[[float], bool]) -> None:
        """Remove copies without readers, the longest unread first, where `goes` is true of the last reader's time."""
        kept = [*self.path.glob("*.json"), *self.path.glob("run-*")]
        for path in sorted(kept, key=lambda path: path.lstat().st_mtime_ns):
            copy = path.with_suffix("") if path.suffix == ".json" else path
            if goes(path.lstat().st_mtime) and (not os.path.lexists(copy) or _alone(copy)):
                path.unlink() if path.suffix == ".json" else None
                _remove(copy)


def run_folder(folder: Path, run: str) -> Path:
    """The folder of a run's links."""
    return folder / f"run-{run}"


def ready(folder: Path, run: str, attempt: str) -> bool:
    """Whether the copies of an attempt are complete on this host."""
    try:
        return private.read_bytes(run_folder(folder, run) / READY, LARGEST_RECORD_BYTES) == attempt.encode()
    except OSError:
        return False


def hold(path: Path, held: ExitStack) -> None:
    """Mark a copy, or the folder of a run, as read by this process until `held` is closed. Raises OSError."""
    descriptor = _opened(path)
    held.callback(os.close, descriptor)
    lock.take(descriptor, shared=True)


def _make(folder: Path) -> None:
    """Make a folder of this user alone, or check the existing folder. Raises SiteError that names its owner."""
    try:
        private.make(folder.parent)
        wrong = make_own_folder(folder)
    except OSError as error:
        raise SiteError(f"{folder}: this folder cannot be made: {error.strerror}; {MEND}") from None
    except SiteError as error:
        raise SiteError(f"{error}; {MEND}") from None
    if wrong:
        raise SiteError(f"{folder}: {wrong}, so nothing is kept there; {MEND}")


def _facts(copy: Path) -> str:
    """A checksum that changes if a file of the copy does: no program can set its ctime. After a crash it differs."""
    total = hashlib.sha256(BOOT.read_bytes())
    for entry in walk(str(copy)):
        if NOT_FACTS not in entry.name.split("/"):
            was = entry.status
            own = (was.st_ino, was.st_size, was.st_mtime_ns, was.st_ctime_ns) if not stat.S_ISDIR(was.st_mode) else ()
            total.update(repr((entry.name, stat.S_IFMT(was.st_mode), own)).encode(errors="surrogateescape"))
    return total.hexdigest()


def _record_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.json")


def _opened(path: Path) -> int:
    return open_folder(path) if stat.S_ISDIR(path.lstat().st_mode) else open_regular(path)


def _alone(path: Path) -> bool:
    """Whether no process has locked `path`."""
    with suppress(OSError):
        descriptor = _opened(path)
        try:
            return lock.take(descriptor, wait_s=0.0) is True
        finally:
            os.close(descriptor)
    return True  # a link, or gone


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
