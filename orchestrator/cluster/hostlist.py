"""Slurm's compressed host lists, expanded in order: never a set, since order is what places ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.errors import SiteError


def expand(text: str) -> list[str]:
    """'n[1-3,7],m-[01-02]' as n1 n2 n3 n7 m-01 m-02. Raises SiteError where it is not a host list."""
    hosts: list[str] = []
    for word in _words(text.strip()):
        hosts += _expand_word(word, text)
    return hosts


def _words(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    start = depth = 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


def _expand_word(word: str, whole: str) -> list[str]:
    match = re.fullmatch(r"([^\[\],\s]*)\[([0-9,-]+)\](.*)", word)
    if not match:
        if not word or re.search(r"[\[\],\s]", word):
            raise SiteError(f"not a host list: {whole!r} (at {word!r})")
        return [word]
    prefix, ranges, rest = match.groups()
    tails = _expand_word(rest, whole) if rest else [""]
    return [prefix + number + tail for part in ranges.split(",") for number in _numbers(part, whole) for tail in tails]


def _numbers(part: str, whole: str) -> list[str]:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
    if not match or (match[2] and int(match[2]) < int(match[1])):
        raise SiteError(f"not a host list: {whole!r} (at {part!r})")
    width = len(match[1])
    return [str(n).zfill(width) for n in range(int(match[1]), int(match[2] or match[1]) + 1)]
