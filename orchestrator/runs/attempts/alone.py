"""The lock of a run: only one client at a time adds an attempt, on all nodes that share the file system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.base import lock
from orchestrator.base.errors import UserError
from orchestrator.runs.folder.run_folder import RunFolder


@contextmanager
def alone(run: RunFolder, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the run's lock. Raises UserError if another client holds it after `wait_s`, SiteError if it cannot open it.

    On a file system without locks, the rename of a second attempt with the same number fails.
    """
    with lock.held(run.lock, wait_s=wait_s) as mine:
        if mine is False:
            raise UserError(f"another attempt of {run.run_id} is being submitted already")
        yield
