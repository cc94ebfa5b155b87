"""What the job and its ranks wrote, as one stream of lines with their origin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.private import open_regular
from orchestrator.runs import remains
from orchestrator.runs.copying import written
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.watch.follow import follow
from orchestrator.watch.plain import plain
from orchestrator.watch.view import read_record

BLOCK_BYTES = 1 << 20
RANK_LOG = re.compile(r"rank-(\d{4,8})\.log")


@dataclass
class Source:
    """One file and how far it has been read. `left` is the line that has begun and has no end yet."""

    origin: str
    path: Path
    read_bytes: int = 0
    left: bytes = b""
    refused: str = ""

    def new(self, *, whole: bool) -> Iterator[str]:
        """The lines that were added since the last call; without `whole` the one that has no end yet, too.

        A file that was cut short is read from its beginning. One that cannot be read is told of once.
        """
        try:
            descriptor = open_regular(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            if self.refused != error.strerror:
                self.refused = str(error.strerror)
                yield f"{self.origin}torusrun: {self.path} cannot be read: {self.refused}"
            return
        try:
            if os.fstat(descriptor).st_size < self.read_bytes:
                self.read_bytes, self.left = 0, b""
            yield from self._lines(descriptor)
        finally:
            os.close(descriptor)
        if self.left and not whole:
            yield from self._texts(self.left)
            self.left = b""

    def _lines(self, descriptor: int) -> Iterator[str]:
        while (start := written(descriptor, self.read_bytes)) is not None:
            block = os.pread(descriptor, BLOCK_BYTES, start)
            if not block:
                return
            self.read_bytes = start + len(block)
            lines, _, self.left = (self.left + block).rpartition(b"\n")
            yield from self._texts(lines)
            if len(self.left) >= BLOCK_BYTES:  # a line without an end is told in pieces
                yield from self._texts(self.left)
                self.left = b""

    def _texts(self, lines: bytes) -> Iterator[str]:
        yield from (f"{self.origin}{line}" for line in lines.decode(errors="replace").splitlines())


def lines(run: RunFolder, *, attempt: int | None, rank: int | None, until_over: bool) -> Iterator[str]:
    """The lines written so far, by file; with `until_over` then those that come, until the run is over.

    Lines of a run that is not one's own are made safe to print. Raises UserError for an attempt or a rank that there
    is not.
    """
    record = read_record(run)
    folder = run.attempt(record.attempt if attempt is None else attempt)
    there = remains.attempts(run)
    if folder.number not in there:
        raise UserError(f"{run.run_id} has no attempt {folder.number} (it has: {', '.join(map(str, there)) or 'none'})")
    ranks = record.plan.ranks if record.plan else None
    if rank is not None and (rank < 0 or (ranks is not None and rank >= ranks)):
        raise UserError(f"{run.run_id} has no rank {rank}: its ranks are 0 to {(ranks or 1) - 1}")
    found = _lines(run, folder, rank, ranks or 1, until_over)
    yield from found if record.mine else map(plain, found)


def _lines(run: RunFolder, folder: Attempt, rank: int | None, ranks: int, until_over: bool) -> Iterator[str]:
    sources: dict[Path, Source] = {}

    def new(*, whole: bool) -> Iterator[str]:
        for origin, path in _sources(folder, ranks, rank):
            yield from sources.setdefault(path, Source(origin, path)).new(whole=whole)

    if until_over:
        for _ in follow(run):
            yield from new(whole=True)
    yield from new(whole=False)


def _sources(folder: Attempt, ranks: int, rank: int | None) -> list[tuple[str, Path]]:
    """The files to read with their origin; those of the ranks as far as there are any."""
    if rank is not None:
        return [("", folder.rank_log(rank))]
    try:
        names = os.listdir(folder.logs)
    except OSError:
        names = []
    width = len(str(ranks - 1))
    logs = sorted(int(found[1]) for name in names if (found := RANK_LOG.fullmatch(name)))
    return [("job | ", folder.stdout), ("job | ", folder.stderr)] + [
        (f"{number:{width}} | ", folder.rank_log(number)) for number in logs
    ]
