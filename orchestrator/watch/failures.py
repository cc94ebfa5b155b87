"""What the logs say of a failure: blocks that begin with 'Traceback', and how ranks ended badly."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator

from orchestrator.errors import SiteError
from orchestrator.job.verdict import failed
from orchestrator.runs.records import RankEnd
from orchestrator.watch import evidence
from orchestrator.watch.logs import TAIL_LINES, Logs
from orchestrator.watch.plain import plain
from orchestrator.watch.source import FollowedFile
from orchestrator.watch.tail import tail

MOST_BLOCKS = 20  # of one file: the newest
MOST_LINES = 500  # of one block
TRACEBACK = "Traceback (most recent call last):"
PREFIX = re.compile(r"^(\[[\w .:-]+\]:? ?)?")  # as PyTorch's '[rank0]: '
LINKS = ("During handling of the above exception", "The above exception was the direct cause")


def failures(logs: Logs) -> Iterator[str]:
    """Every traceback of the job and of the ranks once, then the ranks that ended badly, with their last lines.

    The rank that ended first is told first. Lines have their origin before them. A rank whose traceback is told has no
    last lines.
    """
    told: dict[tuple[str, ...], str] = {}
    also: dict[str, list[str]] = {}  # whose traceback others wrote too
    with_traceback = set()
    for origin, path in logs.files():
        for block in tracebacks(FollowedFile("", path).new(whole=False)):
            with_traceback.add(path)
            if first := told.get(bare := tuple(PREFIX.sub("", line) for line in block)):
                also.setdefault(first, []).append(_who(origin))
                continue
            told[bare] = origin
            yield from (logs.safe(f"{origin}{line}") for line in block)
    yield from _the_same(also)
    for end in _bad_ends(logs):
        yield plain(end.words)
        path = logs.attempt.rank_log(end.rank)
        if path not in with_traceback:
            yield from (logs.safe(f"{end.rank:{len(str(logs.ranks - 1))}} | {line}") for line in tail(path, TAIL_LINES))


def _the_same(also: dict[str, list[str]]) -> Iterator[str]:
    for first, others in also.items():
        names = list(dict.fromkeys(others))
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        yield f"(the traceback of {_who(first)} is also that of {', '.join(names[:8])}{more})"


def _who(origin: str) -> str:
    name = origin.removesuffix(" | ").strip()
    return f"rank {name}" if name.isdecimal() else f"the {name}"


def _bad_ends(logs: Logs) -> list[RankEnd]:
    """The ends of the ranks that ended badly, by time. Records that cannot be read are left out."""
    ends = []
    for rank in evidence.recorded(logs.attempt)[0]:
        with contextlib.suppress(SiteError):
            ends.append(RankEnd.read(logs.attempt.rank_end(rank)))
    return sorted((end for end in ends if failed([end])), key=lambda end: end.ended_s)


def tracebacks(lines: Iterable[str]) -> Iterator[list[str]]:
    """The newest blocks of lines that each begin with a traceback and end with the line that names the exception.

    Exceptions that caused each other are one block.
    """
    blocks: deque[list[str]] = deque(maxlen=MOST_BLOCKS)
    goes_on = linked = False  # whether the newest block does, and whether the next traceback belongs to it
    for line in lines:
        bare = PREFIX.sub("", line, count=1)
        begins, links = TRACEBACK in bare, bare.startswith(LINKS) and bool(blocks)
        if begins and not goes_on and not linked:
            blocks.append([])
        if (begins or links or goes_on) and len(blocks[-1]) < MOST_LINES:
            blocks[-1].append(line)
        if begins or links:
            goes_on, linked = begins, links
        elif bare.strip() and not bare[0].isspace():  # the line that names the exception
            goes_on = linked = False
    yield from blocks
