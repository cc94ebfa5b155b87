"""What is no code, whatever folder is named: home folders, the folder of runs, and files that hold keys and logins."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.keys import paths
from torusrun.orchestrator.run.folder.secret_names import LOGINS

# Folders and files in which programs keep keys and logins; a name with a slash is the end of a path.
SECRET_NAMES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/rclone", ".oci",
    ".password-store", ".local/share/keyrings", ".mozilla", ".huggingface", ".cache/huggingface/token", ".kaggle",
    ".secrets", ".secrets.*", ".*_history", *LOGINS,
)  # fmt: skip
KEY_BEGINS = (b"-----BEGIN", b"PuTTY-User-Key-File")
LARGEST_KEY_BYTES = 1 << 15


def refuse_home(code: Path, runs: Path | None) -> None:
    """Raise UserError for code that is a home folder, is above one or above the folder `runs`, or holds logins."""
    for home in _homes():
        if home == code or code in home.parents:
            raise _refused(code, "this is your home folder" if home == code else f"it holds your home folder {home}")
        if code.is_relative_to(home) and is_secret(os.path.relpath(code, home)):
            raise _refused(code, "programs keep keys and logins in it")
    if runs and (runs == code or code in runs.parents):
        raise _refused(code, f"it holds the folder of runs {runs} (`runs` of the site)")


def is_secret(name: str) -> bool:
    """Whether a path names a file or folder with secrets, or lies in such a folder."""
    parts = name.split(os.sep)
    last_words = ("/".join(parts[max(0, end - words) : end]) for end in range(1, len(parts) + 1) for words in (1, 2, 3))
    return any(fnmatchcase(words, pattern) for words in {*last_words} for pattern in SECRET_NAMES)


def is_private_key(path: Path, size_bytes: int) -> bool:
    """Whether a file begins as a private key, whatever its name."""
    if size_bytes > LARGEST_KEY_BYTES:
        return False
    with suppress(OSError), open(open_regular(path), "rb", buffering=0) as file:
        first = file.read(100).lstrip(b"\xef\xbb\xbf \t\r\n")
        return first.startswith(KEY_BEGINS) and (b"PRIVATE KEY" in first or first.startswith(KEY_BEGINS[1]))
    return False


def _homes() -> set[Path]:
    """The home folders of this user, by HOME and by the system's list of users."""
    found = set()
    with suppress(UserError):
        found.add(Path(os.path.realpath(paths.home())))
    with suppress(KeyError):
        found.add(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    return found - {Path("/")}


def _refused(code: Path, why: str) -> UserError:
    return UserError(
        f"{code}: {why}, and the code of a run is copied; put the code into a folder of its own and name that "
        "(`code: FOLDER`, `--code FOLDER`), or copy nothing (`code: none`, `--code none`)"
    )
