"""Reads the values of a run's secret variables at its submission. No message holds a value."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.kinds import LONGEST_VALUE
from torusrun.orchestrator.keys.paths import expanded, home
from torusrun.orchestrator.keys.shared import Secret
from torusrun.orchestrator.run.plan.plan import Plan


def read(plan: Plan) -> dict[str, str]:
    """The values by name. Raises UserError with the reason if a value cannot be read."""
    return {name: _value(f"env.{name}", name, secret, plan.code) for name, secret in plan.secrets.items()}


def _value(key: str, name: str, secret: Secret, code: Path | None) -> str:
    if secret.file:
        return _checked(key, _text(key, Path(os.path.realpath(expanded(secret.file))), code))
    if name not in os.environ:
        raise UserError(f"{key!r}: this shell has no variable {name}; export it, or write {{from: FILE}}")
    return _checked(key, os.environ[name])


def _text(key: str, path: Path, code: Path | None) -> str:
    """The text of a file that its user alone can read, without its last line break."""
    if code and path.is_relative_to(os.path.realpath(code)):
        raise UserError(f"{key!r}: {path} is in {code}, which is copied with the run; move it to another folder")
    try:
        with open(private.open_regular(path), "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(4 * LONGEST_VALUE + 1)
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"{key!r}: {path}: cannot be read: {why}") from None
    if status.st_uid != os.geteuid():
        raise UserError(f"{key!r}: {path} belongs to another user; copy it to a file of yours")
    if stat.S_IMODE(status.st_mode) & 0o077:
        own = path.is_relative_to(os.path.realpath(home()))  # others may need a file elsewhere, as /etc/passwd
        mend = f"close it: chmod 600 {shlex.quote(str(path))}" if own else "write it into a file that only you can read"
        raise UserError(f"{key!r}: {path} is open to other users; {mend}")
    return text.removesuffix("\n")


def _checked(key: str, value: str) -> str:
    """`value` itself. Raises UserError if no program can get it."""
    if not value:
        raise UserError(f"{key!r}: its value is empty; write the secret there, or leave the variable out")
    if "\0" in value or len(value) > LONGEST_VALUE:
        raise UserError(f"{key!r}: its value has a NUL character, or more than {LONGEST_VALUE} characters")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise UserError(f"{key!r}: its value is not UTF-8 text")
    return value
