"""One client at a time adds an attempt to a run, over all nodes that share the file system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.base import lock
from orchestrator.base.errors import UserError
from orchestrator.runs.folder.run_folder import RunFolder


@contextmanager
def alone(run: RunFolder, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the run's lock. Raises UserError when another client holds it, SiteError when it cannot be opened.

    The other one is given `wait_s` to end. On a file system without locks, of two attempts with the same number the
    second cannot take its name.
    """
    with lock.held(run.lock, wait_s=wait_s) as mine:
        if mine is False:
            raise UserError(f"another attempt of {run.run_id} is being submitted already")
        yield
