"""The limits of the code that a run copies, and the error for larger code: its largest parts, and advice."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.run.code.select import SelectedCode
from torusrun.training.counted import counted

LIMIT_BYTES = 100_000_000
LIMIT_FILES = 10_000
SHOWN = 3


def check(chosen: SelectedCode, limit_bytes: int) -> None:
    """Raise UserError if the code has more bytes or files than a run copies."""
    more = "" if chosen.complete else "more than "
    if chosen.size_bytes > limit_bytes:
        total, limit, words = chosen.size_bytes, limit_bytes, _megabytes
        sizes = Counter({entry.name: entry.size_bytes for entry in chosen.entries})
    elif chosen.files > LIMIT_FILES or not chosen.complete:
        total, limit, words = chosen.files, LIMIT_FILES, partial(counted, noun="file")
        sizes = Counter({entry.name: 1 for entry in chosen.entries})
    else:
        return
    biggest = ", ".join(f"{name} ({words(size)})" for name, size in _biggest(sizes))
    ignore = "List files that are not code in .gitignore"
    if not chosen.tracked:
        ignore = "Make the folder a git checkout and list files that are not code in its .gitignore"
    raise UserError(
        f"{chosen.source}: the code has {more}{words(total)}; a run copies at most {words(limit)}. "
        f"The largest parts: {biggest}. {ignore}, set `code` to a smaller folder, "
        "write `code: none` if the program is in the image, or raise `code_limit`"
    )


def _biggest(sizes: Counter[str]) -> list[tuple[str, int]]:
    """The largest children of the source; for each, the deepest folder or file that holds most of it."""
    totals: Counter[str] = Counter()
    for name, size in sizes.items():
        parts = name.split(os.sep)
        for depth in range(1, len(parts) + 1):
            totals[os.sep.join(parts[:depth])] += size
    inside: dict[str, list[str]] = {}
    for name in totals:
        inside.setdefault(os.path.dirname(name), []).append(name)
    largest = sorted(inside.get("", []), key=lambda name: -totals[name])[:SHOWN]
    return [(name, totals[name]) for name in (_deepest(top, inside, totals) for top in largest)]


def _deepest(name: str, inside: dict[str, list[str]], totals: Counter[str]) -> str:
    while children := inside.get(name):
        child = max(children, key=totals.__getitem__)
        if totals[child] * 10 < totals[name] * 9:
            break
        name = child
    return name


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 50_000 else counted(size_bytes, "byte")
