"""The lock of a run: whoever adds an attempt, or judges how one ended and writes that down, does so alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from torusrun.orchestrator.base import lock
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.run.folder.run_folder import RunFolder

WAIT_S = 5.0  # for a process that records an end, which takes a moment
_mine: ContextVar[frozenset[Path]] = ContextVar("the locks of runs that the caller holds", default=frozenset())


@contextmanager
def alone(run: RunFolder, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the run's lock, on all nodes that share the file system; a caller that holds it may do so again.

    Raises UserError if another process holds it after `wait_s`, SiteError if it cannot be opened. On a file system
    without locks, the rename of a second attempt with the same number fails.
    """
    if run.lock in _mine.get():
        yield
        return
    with lock.held(run.lock, wait_s=wait_s) as mine:
        if mine is False:
            raise UserError(
                f"another process adds an attempt of {run.run_id} or records its end; try again in a moment"
            )
        before = _mine.set(_mine.get() | {run.lock})
        try:
            yield
        finally:
            _mine.reset(before)
