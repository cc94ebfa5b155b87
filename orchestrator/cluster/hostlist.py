"""Slurm's compressed host lists, expanded and written in order: never a set, since order is what places ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from orchestrator.errors import SiteError


def expand(text: str) -> list[str]:
    """'n[1-3,7],m-[01-02]' as n1 n2 n3 n7 m-01 m-02. Raises SiteError where it is not a host list."""
    hosts: list[str] = []
    for word in _words(text.strip()):
        hosts += _expand_word(word, text)
    return hosts


def fold(hosts: Sequence[str]) -> str:
    """The inverse of `expand`, and of `scontrol show hostnames`: in order, runs of following numbers in brackets.

    Raises SiteError for a name that a host list cannot hold.
    """
    if strange := [host for host in hosts if not host or re.search(r"[\[\],\s]", host)]:
        raise SiteError(f"{strange[0]!r} cannot stand in a host list")
    parts: list[tuple[str | None, list[str]]] = []  # (what stands before the number, numbers), or (None, [the name])
    for host in hosts:
        match = re.fullmatch(r"(.*?)([0-9]+)", host)  # Slurm reads nothing after a bracket, so a number must come last
        before, word = match.groups() if match else (None, host)
        if before is not None and parts and parts[-1][0] == before:
            parts[-1][1].append(word)
        else:
            parts.append((before, [word]))
    return ",".join(_folded(before, words) for before, words in parts)


def _folded(before: str | None, words: list[str]) -> str:
    if len(words) == 1:
        return f"{before or ''}{words[0]}"
    return f"{before}[{','.join(_ranges(words))}]"


def _ranges(numbers: list[str]) -> Iterator[str]:
    """07, 08 and 10 as 07-08 and 10: numbers of a range are as wide as its first."""
    start = end = numbers[0]
    for number in numbers[1:]:
        if number == str(int(end) + 1).zfill(len(start)):
            end = number
            continue
        yield start if start == end else f"{start}-{end}"
        start = end = number
    yield start if start == end else f"{start}-{end}"


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
