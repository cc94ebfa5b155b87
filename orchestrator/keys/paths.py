"""Paths that a user writes. Errors explain why a path cannot exist, or that there is no home folder."""

from __future__ import annotations

import codecs
import os
import pwd
import re
import stat
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.kinds import CONTROL
from torusrun.orchestrator.keys.problems import shown

LONGEST_PATH, LONGEST_NAME = 4095, 255  # bytes: Linux's PATH_MAX without its NUL, and NAME_MAX


def complaint(text: str) -> str | None:
    """Why no file can have the path `text`, or why a script cannot hold it; None if it is valid."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8 text"
    if not text:
        return "it is empty"
    if "\0" in text:
        return "it holds a NUL character"
    if re.search(f"[{CONTROL}]", text):
        return "it holds a line break or another control character"
    if len(encoded) > LONGEST_PATH:
        return f"it is longer than {LONGEST_PATH} bytes"
    if any(len(part) > LONGEST_NAME for part in encoded.split(b"/")):
        return f"a name in it is longer than {LONGEST_NAME} bytes"
    return None


def checked(text: str | Path) -> Path:
    """`text` as a path; a leading '~' stays. Raises UserError if no file can have this path."""
    if reason := complaint(str(text)):
        raise UserError(f"{shown(str(text))} cannot be a path: {reason}")
    return Path(text)


def expanded(text: str | Path) -> Path:
    """`text` as a path, with a home folder for '~' or '~user'. Raises UserError if no file can have this path."""
    path = checked(text)
    first = path.parts[0] if path.parts else ""
    if not first.startswith("~"):
        return path
    return checked((home() if first == "~" else _home_of(first[1:])).joinpath(*path.parts[1:]))


def state_folder() -> Path:
    """The folder of torusrun's records of this user's runs. Raises UserError without a home folder."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (checked(state) if os.path.isabs(state) else home() / ".local" / "state") / "torusrun"


def absolute(text: str | Path, beside: Path | None = None) -> Path:
    """`text` as an absolute path. A relative path begins at `beside` (default: the working directory)."""
    path = (beside or Path()) / expanded(text)
    try:
        return checked(path.absolute())
    except FileNotFoundError:
        raise UserError(f"{path}: the working directory does not exist any more; `cd` into another one") from None


def home() -> Path:
    """The user's home folder. Raises UserError if there is none."""
    try:
        named = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        named = ""
    if not os.path.isabs(named):
        raise UserError(f"there is no home folder: HOME is {named!r}; set it to the absolute path of a folder")
    return checked(named)


def config_home() -> Path:
    """The folder of the user's settings: XDG_CONFIG_HOME, or ~/.config."""
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return checked(named) if os.path.isabs(named) else home() / ".config"


def exists(path: Path) -> bool:
    """Whether `path` exists. Raises UserError if that is unknown, as in a folder without permission."""
    try:
        checked(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UserError(f"{path}: cannot be looked at: {error.strerror}") from None
    return True


def read_bytes(path: Path, largest_bytes: int) -> bytes:
    """The content of a file or a pipe. It does not wait for a writer to open the pipe.

    Raises OSError if `path` cannot be read, or holds more than `largest_bytes`.
    """
    descriptor = os.open(checked(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        os.close(descriptor)
        raise OSError(0, "this is a folder" if stat.S_ISDIR(kind) else "this is not a regular file")
    os.set_blocking(descriptor, True)
    with open(descriptor, "rb") as file:
        content = file.read(largest_bytes + 1)
    if len(content) > largest_bytes:
        raise OSError(0, f"this is too large: it has more than {largest_bytes} bytes")
    return content


def decoded(content: bytes) -> str:
    """The text of a file, as UTF-8 or in what Windows writes: UTF-16 or UTF-8 behind a mark. Raises UnicodeError."""
    utf_16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if utf_16 else "utf-8-sig")


def _home_of(user: str) -> Path:
    try:
        return checked(pwd.getpwnam(user).pw_dir)
    except KeyError:
        raise UserError(f"there is no user {shown(user)}; write the path of the folder without '~'") from None
