"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from orchestrator.errors import SiteError


def write_text(path: Path, text: str) -> None:
    """Write `text` to a temporary neighbour and rename it to `path`. Raises SiteError when that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SiteError(f"{path}: cannot be written: {error.strerror}") from None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in `path`, None when the file is absent. Raises SiteError when it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SiteError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SiteError(f"{path}: this is damaged: {error}") from None
