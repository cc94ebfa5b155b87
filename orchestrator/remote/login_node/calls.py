"""Calls on the login node: programs whose output, errors and exit code are kept in files until they have been read.

The caller chooses the name of a call. The call continues when the link breaks, and a reader can resume at any offset.
A folder of the call, in ~/.local/state/torusrun/calls, has

    request.json                the request
    out, err, exit              its output, its errors, and its exit code once it has ended
    lock                        held by its process (calling.py)
    left                        a link to files that are to be fetched
    read                        touched at every read
    stop                        there when the call must end
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.remote.links.frames import PIECE_BYTES

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
BETWEEN_S = 0.05
KEPT_S = 7 * 86400.0
STAGED = ".torusrun-collect-"  # prefix of a run's copy that waits to be fetched
BEGINS_S = 30.0  # a call without a process after that time is gone


def place() -> Path:
    return state_folder() / "calls"


def folder_of(call: str) -> Path:
    """The folder of a call. Raises SiteError if `call` is not a valid name."""
    if not NAME.fullmatch(call):
        raise SiteError(f"{call!r} is not the name of a call")
    return place() / call


def start(call: str, content: bytes) -> None:
    """Start the request in `content` unless there is a call of this name."""
    folder = folder_of(call)
    private.make(place())
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return
    try:
        private.write_bytes(folder / "request.json", content)
        for file in ("out", "err", "read"):
            (folder / file).touch(mode=0o600)
        with open(folder / "err", "ab") as errors:
            process.detach(
                process.module(sys.executable, "torusrun.orchestrator.remote.login_node.calling", folder), errors
            )
    except BaseException:  # the request may hold secrets
        shutil.rmtree(folder, ignore_errors=True)
        raise


def read(call: str, out: int, err: int, wait_s: float) -> tuple[dict[str, Any], bytes]:
    """The output of a call from these offsets on, with its exit code if it ended. Waits a moment for new output."""
    folder = folder_of(call)
    until_s = time.monotonic() + wait_s
    with contextlib.suppress(OSError):
        os.utime(folder / "read")
    while True:
        code = _exit_code(folder)  # before the output: nothing is written after the exit code
        new, errors = _from(folder / "out", out), _from(folder / "err", err)
        gone = code is None and _gone(folder)
        if new or errors or code is not None or gone or time.monotonic() > until_s:
            return {"out": len(new), "err": len(errors), "exit": code, "gone": gone}, new + errors
        time.sleep(BETWEEN_S)


def _exit_code(folder: Path) -> int | None:
    try:
        return int((folder / "exit").read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _from(path: Path, offset: int) -> bytes:
    try:
        with open(private.open_regular(path), "rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES)
    except FileNotFoundError:
        return b""


def _gone(folder: Path) -> bool:
    """Whether the process of a call is gone without an exit code."""
    if not folder.is_dir():
        return True
    try:
        descriptor = private.open_regular(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return _age_s(folder) > BEGINS_S
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return _exit_code(folder) is None


def _age_s(folder: Path) -> float:
    """Seconds since a call was made, by the clock of the file system, which may differ from that of this machine."""
    try:
        os.utime(folder / "read")
        return (folder / "read").stat().st_mtime - (folder / "request.json").stat().st_mtime
    except FileNotFoundError:  # the request is still being written, or its secrets were read and it is removed
        return time.time() - folder.stat().st_mtime


def fetch(call: str, file: str, at: int) -> bytes:
    """The bytes of a file that a call has left, from an offset on. Raises SiteError for a file outside its folder."""
    folder = (folder_of(call) / "left").resolve()
    path = (folder / file).resolve()
    if not path.is_relative_to(folder):
        raise SiteError(f"{file!r} is not below {folder}")
    return _from(path, at)


def stop(call: str) -> None:
    """Request the end of a call."""
    with contextlib.suppress(FileNotFoundError):
        (folder_of(call) / "stop").touch(mode=0o600)


def forget(call: str) -> None:
    """Remove a call with all of its files."""
    folder = folder_of(call)
    if (folder / "left").is_symlink():
        left = Path(os.readlink(folder / "left"))
        if left.name.startswith(STAGED) and private.is_mine(left):
            shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def clean() -> None:
    """Remove calls that were not read for days."""
    with contextlib.suppress(OSError):
        for folder in place().iterdir():
            with contextlib.suppress(OSError, SiteError):
                if time.time() - _read_s(folder) > KEPT_S:
                    forget(folder.name)


def _read_s(folder: Path) -> float:
    """When the output of a call was last read; for a call that was never begun, when its folder was last changed."""
    try:
        return (folder / "read").stat().st_mtime
    except FileNotFoundError:
        return folder.stat().st_mtime
