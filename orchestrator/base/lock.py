"""The file locks of `training.files.lock`, with errors for users."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torusrun.orchestrator.base.errors import explained
from torusrun.training.files import lock


@contextmanager
def held(
    path: Path, *, shared: bool = False, wait_s: float = math.inf, waiting: Callable[[], None] = lambda: None
) -> Iterator[bool | None]:
    """Hold the lock of a file, as `training.files.lock.held` does. Raises SiteError if the file cannot be opened."""
    with ExitStack() as stack:
        with explained(f"{path}: the lock cannot be opened"):
            mine = stack.enter_context(lock.held(path, shared=shared, wait_s=wait_s, waiting=waiting))
        yield mine
