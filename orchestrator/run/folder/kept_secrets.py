"""The file of a run with the values of its secret variables. No other file holds them.

Every rank's wrapper reads it. A container's shell reads it too, for values that the runtime cannot carry.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.command import exported
from torusrun.orchestrator.run.folder.run_folder import RunFolder

LARGEST_BYTES = 1 << 24


def keep(run: RunFolder, values: Mapping[str, str]) -> None:
    """Write the values, if the run has any, for the user alone. Raises OSError."""
    if values:
        private.write_bytes(run.secrets, exported(values).encode())


def kept(run: RunFolder, names: Collection[str]) -> dict[str, str]:
    """The values of the variables `names`. Raises SiteError if a value is missing."""
    if not names:
        return {}
    values = all_of(run)
    if missing := sorted({*names} - {*values}):
        raise SiteError(f"{run.secrets}: it has no value of {', '.join(missing)}; submit a new run")
    return {name: values[name] for name in names}


def all_of(run: RunFolder) -> dict[str, str]:
    """All values. Raises SiteError if the file cannot be read."""
    try:
        words = shlex.split(private.read_bytes(run.secrets, LARGEST_BYTES).decode())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise SiteError(f"{run.secrets}: the secret variables cannot be read: {why}; submit a new run") from None
    return dict(word.split("=", 1) for word in words if "=" in word)  # export NAME=value
