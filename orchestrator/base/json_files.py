"""Files that are written completely or not at all, and read strictly: they may be damaged, forged or missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, explained
from torusrun.orchestrator.base.private import READABLE, SECRET, read_bytes, write_bytes

LARGEST_BYTES = 16 * 1024 * 1024


def write_text(path: Path, text: str, *, secret: bool = False) -> None:
    """Write `text` to a temporary file in the same folder and rename it to `path`. Raises SiteError if that fails.

    The umask decides who else may read it; only its owner may read a `secret`.
    """
    with explained(f"{path}: cannot be written"):
        write_bytes(path, text.encode("utf-8"), SECRET if secret else READABLE)


def write_json(path: Path, value: Any, *, secret: bool = False) -> None:
    """Write `value` as JSON, as `write_text` does."""
    write_text(path, json.dumps(value, indent=1) + "\n", secret=secret)


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in the regular file `path`, or None if there is no such file.

    Raises SiteError if it is damaged, larger than LARGEST_BYTES, or not a regular file.
    """
    try:
        content = read_bytes(path, LARGEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SiteError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        value = parsed(content)
    except ValueError as error:
        raise damaged(path, str(error)) from None
    if not isinstance(value, dict):
        raise damaged(path, "it does not hold a JSON object")
    return value


def required(path: Path, record: Mapping[str, Any], key: str, *kinds: type) -> Any:
    """One value of a record. Raises SiteError if it is missing or has none of these types; a bool is not an int."""
    value = record.get(key)
    if type(value) not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        problem = f"is of type {type(value).__name__}, not {wanted}" if key in record else "is missing"
        raise damaged(path, f"{key!r} {problem}")
    return value


def damaged(path: Path, why: str) -> SiteError:
    return SiteError(f"{path}: this is damaged: {why}")


def parsed(content: bytes) -> Any:
    """The JSON in `content`. Raises ValueError with a plain message for every kind of damage."""
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except ValueError:  # Python refuses to read a number of more than 4300 digits
        raise ValueError("a number in it is too long") from None
