"""The place of the node's own copy of a path, if the run has staged it (`stage:` in a run file).

TORUSRUN_STAGED names the run's folder on the node. Its `paths.json` has the copy of each staged path, which is named
as written and without links.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from torusrun.training.files.trusted import open_own
from torusrun.training.recipe.reading import ConfigError

VARIABLE = "TORUSRUN_STAGED"
PATHS, READY = "paths.json", ".attempt"  # torusrun's own files in that folder
LARGEST_BYTES = 1 << 20


def local(path: Path) -> Path:
    """This node's copy of `path`; `path` if the run stages neither it nor a folder above. Raises ConfigError."""
    return _other(os.path.realpath(path), _copies()) or path


def source(path: Path) -> Path:
    """The path whose copy is `path`: what was kept about it holds for all copies. Raises ConfigError."""
    return _other(os.path.abspath(path), {copy: source for source, copy in _copies().items()}) or path


def _other(path: str, places: Mapping[str, str]) -> Path | None:
    for above in (Path(path), *Path(path).parents):
        if place := places.get(str(above)):
            return Path(place, Path(path).relative_to(above))
    return None


def _copies() -> dict[str, str]:
    """The copy of each staged path; the list must be this user's own, since whoever writes it chooses the data."""
    if not (folder := os.environ.get(VARIABLE)):
        return {}
    place = Path(folder, PATHS)
    try:
        with open(open_own(place), "rb") as file:
            copies = json.loads(file.read(LARGEST_BYTES))
    except OSError as error:
        raise ConfigError(f"{VARIABLE}: {place}: {error.strerror}") from None
    except (ValueError, RecursionError):
        copies = None
    if not isinstance(copies, dict) or not all(isinstance(to, str) and os.path.isabs(to) for to in copies.values()):
        raise ConfigError(f"{VARIABLE}: {place} is not a list of copies")
    return copies
