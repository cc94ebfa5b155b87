"""Slurm's compressed host lists, expanded and written in order; never as a set, because the order places ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.terminal.plain import plain

MOST_HOSTS = 1_000_000
LONGEST_HOST = 253  # characters of a name in the DNS (RFC 1035)
SHOWN = 200  # characters of a list in a message
WORD = re.compile(r"[^\[\],\s]*(?:\[[0-9,/-]+\][^\[\],\s]*)*")


def expand(text: str, most: int = MOST_HOSTS) -> list[str]:
    """'n[1-3,7],m-[01-02]' as n1 n2 n3 n7 m-01 m-02.

    Raises SiteError if it is not a host list, or has more than `most` hosts.
    """
    hosts: list[str] = []
    for word in split(text.strip()):
        hosts += _expand_word(word, text, most - len(hosts))
    return hosts


def by_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts n2 before n10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def numbers(text: str) -> tuple[int, ...]:
    """'0-3,8' as 0 1 2 3 8; empty for other text, as N/A."""
    try:
        return tuple(map(int, expand(f"[{text}]")))
    except (SiteError, ValueError):
        return ()


def fold(hosts: Sequence[str]) -> str:
    """The inverse of `expand`, and of `scontrol show hostnames`: in order, consecutive numbers in brackets.

    Raises SiteError for a name that a host list cannot hold.
    """
    if strange := [host for host in hosts if not host or re.search(r"[\[\],\s]", host)]:
        raise SiteError(f"{strange[0]!r} cannot be written in a host list")
    parts: list[tuple[str | None, list[str]]] = []  # (text before the number, numbers), or (None, [the name])
    for host in hosts:
        match = re.fullmatch(r"(.*?)([0-9]+)", host)  # Slurm reads no text after a bracket, so a number must be last
        before, word = match.groups() if match else (None, host)
        if before is not None and parts and parts[-1][0] == before:
            parts[-1][1].append(word)
        else:
            parts.append((before, [word]))
    return ",".join(_folded(before, words) for before, words in parts)


def _folded(before: str | None, words: list[str]) -> str:
    if len(words) == 1:
        return f"{before or ''}{words[0]}"
    return f"{before}[{','.join(number_ranges(words))}]"


def number_ranges(numbers: list[str]) -> Iterator[str]:
    """07, 08 and 10 as 07-08 and 10: all numbers of a range are as wide as the first."""
    start = end = numbers[0]
    for number in numbers[1:]:
        if number == str(int(end) + 1).zfill(len(start)):
            end = number
            continue
        yield start if start == end else f"{start}-{end}"
        start = end = number
    yield start if start == end else f"{start}-{end}"


def split(text: str) -> Iterator[str]:
    """The parts of `text` between the commas outside brackets."""
    start = depth = 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


def _expand_word(word: str, whole: str, most: int) -> list[str]:
    if not word or not WORD.fullmatch(word):
        raise _no_list(whole, word)
    # Texts and ranges alternate: 'n[1-2]x' is 'n', '1-2', 'x'.
    parts = re.split(r"\[([0-9,/-]+)\]", word)
    ranges = [[_range(part, whole) for part in text.split(",")] for text in parts[1::2]]
    if math.prod(sum(len(numbers) for numbers, _ in several) for several in ranges) > most:
        raise SiteError(f"a host list of more than {MOST_HOSTS} hosts: {_short(whole)}")
    widest = sum(max(max(width, len(str(numbers[-1]))) for numbers, width in several) for several in ranges)
    if sum(map(len, parts[::2])) + widest > LONGEST_HOST:
        raise SiteError(f"a host's name of more than {LONGEST_HOST} characters: {_short(word)}")
    names = [""]
    for text, several in zip(parts[::2], [*ranges, None], strict=True):
        numbers = [f"{n:0{width}}" for each, width in several for n in each] if several else [""]
        names = [f"{name}{text}{number}" for name in names for number in numbers]
    return names


def _range(part: str, whole: str) -> tuple[range, int]:
    """'08-11' as its numbers and their written width; '08-11/2' is every second of them, as ClusterShell writes it."""
    match = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([1-9][0-9]{0,17}))?)?", part)
    if not match or (match[2] and int(match[2]) < int(match[1])):
        raise _no_list(whole, part)
    first, last = match[1], match[2] or match[1]
    if last.startswith("0") and len(last) != len(first):  # programs differ: is 9 of 1-010 written 9 or 009?
        raise SiteError(f"the numbers of {part!r} have different widths; write both with as many digits")
    return range(int(first), int(last) + 1, int(match[3] or 1)), len(first)


def _no_list(whole: str, at: str) -> SiteError:
    return SiteError(f"not a host list: {_short(whole)} (at {_short(at)})")


def _short(text: str) -> str:
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}..."


def folded(hosts: Sequence[str]) -> str:
    """'g[0001-0004]'; names that a host list cannot hold stay unchanged."""
    try:
        return plain(fold(hosts)) if hosts else ""
    except SiteError:
        return plain(",".join(hosts))
