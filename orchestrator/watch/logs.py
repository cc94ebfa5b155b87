"""What the job and its ranks wrote, as one stream of lines with their origin."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.watch.poll import views
from orchestrator.watch.view import read_record

LOOK_S = 0.5


def lines(run: RunFolder, *, attempt: int | None, rank: int | None, follow: bool) -> Iterator[str]:
    """The lines written so far, by file; with `follow` then those that come, until the run is over.

    Raises UserError for an attempt or a rank that there is not.
    """
    folder = run.attempt(attempt or read_record(run).attempt)
    if not folder.folder.is_dir():
        there = ", ".join(sorted(p.name for p in run.attempts.iterdir()))
        raise UserError(f"{run.run_id} has no attempt {folder.number} (it has: {there})")
    ranks = int(read_record(run).plan["ranks"])
    if rank is not None and not 0 <= rank < ranks:
        raise UserError(f"{run.run_id} has no rank {rank}: its ranks are 0 to {ranks - 1}")
    read: dict[Path, int] = {}
    yield from _new(folder, ranks, rank, read)
    while follow and not views([run])[0].state.over:
        time.sleep(LOOK_S)
        yield from _new(folder, ranks, rank, read)
    yield from _new(folder, ranks, rank, read)


def _new(folder: Attempt, ranks: int, rank: int | None, read: dict[Path, int]) -> Iterator[str]:
    """Whole lines that were added since the offsets in `read`, which move on."""
    for origin, path in _sources(folder, ranks, rank):
        if not path.exists():
            continue
        with open(path, "rb") as file:
            file.seek(read.get(path, 0))
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            read[path] = read.get(path, 0) + len(whole) + 1
            yield from (f"{origin}{line}" for line in whole.decode(errors="replace").splitlines())


def _sources(folder: Attempt, ranks: int, rank: int | None) -> list[tuple[str, Path]]:
    if rank is not None:
        return [("", folder.rank_log(rank))]
    width = len(str(ranks - 1))
    return [("job | ", folder.stdout), ("job | ", folder.stderr)] + [
        (f"{r:{width}} | ", folder.rank_log(r)) for r in range(ranks)
    ]
