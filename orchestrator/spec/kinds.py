"""The kinds of value a spec can hold beyond Python's own: written form, meaning and limits in one place.

A dataclass field says `Annotated[float, DURATION]`; the reader calls `parse` on the text as written, and the JSON
schema is made from `pattern` and `means`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
UNITS_BYTES = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}


@dataclass(frozen=True)
class Kind:
    """A value written as text. `parse` raises ValueError with the way to mend it; `write` is its inverse."""

    means: str
    pattern: str
    parse: Callable[[str], Any]
    write: Callable[[Any], str] = str


@dataclass(frozen=True)
class Limits:
    """The values a number may take, both ends included unless `above` is given (then the low end is not)."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None

    def complaint(self, value: float) -> str | None:
        """What is wrong with `value`, or None."""
        if self.above is not None and not value > self.above:
            return f"must be above {self.above:g}"
        if self.at_least is not None and not value >= self.at_least:
            return f"must be at least {self.at_least:g}"
        if self.at_most is not None and not value <= self.at_most:
            return f"must be at most {self.at_most:g}"
        return None


def _matched(kind: str, pattern: str, example: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"is not {kind}; {example}")
        return text

    return parse


def text_kind(means: str, pattern: str, example: str) -> Kind:
    """Text that matches `pattern` from end to end; `example` says how to write it."""
    return Kind(means, f"^{pattern}$", _matched(means, pattern, example))


def seconds(text: str) -> float:
    """'90s', '10m', '1h30m', '2d' or 'HH:MM:SS' as seconds."""
    if clock := re.fullmatch(r"(\d+):([0-5]\d):([0-5]\d)", text):
        hours, minutes, rest = map(int, clock.groups())
        total = float(hours * 3600 + minutes * 60 + rest)
    elif re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        total = sum(float(n) * UNITS_S[u] for n, u in re.findall(r"(\d+(?:\.\d+)?)([smhd])", text))
    else:
        raise ValueError("is not a duration; write 90s, 10m, 1h30m, 2d or HH:MM:SS")
    if total <= 0:
        raise ValueError("must be longer than nothing; write 90s, 10m, 1h30m, 2d or HH:MM:SS")
    return total


def bytes_(text: str) -> int:
    """'512MiB', '60GiB' or '60GB' as bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", text)
    if not match or match[2] not in UNITS_BYTES:
        raise ValueError(f"is not a size; write a number and one of {', '.join(UNITS_BYTES)}, as in 60GiB")
    return int(float(match[1]) * UNITS_BYTES[match[2]])


def bytes_per_s(text: str) -> float:
    """'12.5GB/s' or '100Gbit/s' as bytes per second."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([kMGT]?)bit|([A-Za-z]+))/s", text)
    if match and match[2] is not None:
        rate = float(match[1]) * UNITS_BYTES[f"{match[2]}B"] / 8
    elif match and match[3] in UNITS_BYTES:
        rate = float(match[1]) * UNITS_BYTES[match[3]]
    else:
        raise ValueError("is not a bandwidth; write it as 12.5GB/s or 100Gbit/s")
    if not rate > 0:
        raise ValueError("must be above 0; write it as 12.5GB/s or 100Gbit/s")
    return rate


def share(text: str) -> float:
    """'1/3' or '0.5' as a number above 0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-?\d+)?)(?:/(\d+))?", text)
    if not match or not float(match[1]) or match[2] and not int(match[2]):
        raise ValueError("is not a share; write it as 1/3 or 0.5, above 0")
    return float(match[1]) / int(match[2] or 1)


def grid(text: str) -> tuple[int, int]:
    """'4x2' as (4, 2): rows of 4 ranks, 2 of them."""
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if not match:
        raise ValueError("is not a grid; write XxY, as in 4x2: rows of 4 ranks, 2 rows")
    return int(match[1]), int(match[2])


DURATION = Kind("a duration", r"^(\d+:[0-5]\d:[0-5]\d|(\d+(\.\d+)?[smhd])+)$", seconds, lambda s: f"{s:.6f}s")
SIZE = Kind("a size", r"^\d+(\.\d+)? ?(B|[KMGT]iB|[kMGT]B)$", bytes_, lambda n: f"{n}B")
RATE = Kind("a bandwidth", r"^\d+(\.\d+)? ?([kMGT]?bit|B|[KMGT]iB|[kMGT]B)/s$", bytes_per_s, lambda r: f"{r:.6f}B/s")
SHARE = Kind("a share", r"^\d+(\.\d+)?(e-?\d+)?(/\d+)?$", share, repr)
GRID = Kind("a grid", r"^[1-9]\d*x[1-9]\d*$", grid, lambda xy: f"{xy[0]}x{xy[1]}")
NAME = text_kind(
    "a name",
    r"[A-Za-z][A-Za-z0-9._-]{0,62}",
    "use letters, digits, '.', '_' and '-', beginning with a letter, at most 63",
)
VARIABLE = text_kind(
    "an environment variable's name", r"[A-Za-z_][A-Za-z0-9_]*", "use letters, digits and '_', beginning with a letter"
)
WORD = text_kind("a lower-case word", r"[a-z][a-z0-9_]*", "use lower-case letters, digits and '_'")
BIND = text_kind(
    "a bind", r"/[^:,\x00-\x1f]*(:/[^:,\x00-\x1f]*)?(:(ro|rw))?", "write /host, /host:/inside or /host:/inside:ro"
)
ARCHITECTURE = text_kind("a GPU architecture", r"sm_[0-9]{2,3}[a-z]?", "write it as sm_70")
LINE = text_kind(
    "one line of text", r"[^\x00-\x1f\x7f]+", "it must not be empty or hold line breaks or control characters"
)
PLACEHOLDERS = ("nodes", "ranks", "ranks_per_node", "cpus", "gpus", "account")
ASK = text_kind(
    "a request in the scheduler's words",
    r"([^{}\x00-\x1f\x7f]|\{(" + "|".join(PLACEHOLDERS) + r")\})+",
    f"one line, in which these are filled in: {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}",
)
