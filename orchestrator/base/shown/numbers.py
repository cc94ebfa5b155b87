"""Numbers for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence


def number(value: float) -> str:
    """A loss as '0.3140', or as '3.1e-05' if that would be 0; the width stays equal from step to step."""
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def percent(accuracy: float) -> str:
    """A share as '97.20%'. A value above 1 is not a share, and is shown unchanged."""
    return f"{accuracy:.2%}" if abs(accuracy) <= 1 else f"{accuracy:.4g}"


def thousands(count: float) -> str:
    """A whole number with separators, as '1,641,853'."""
    return f"{count:,.0f}"


def steps(step: int | None, total: int | None) -> str | None:
    """'120/450', or '120' if the number of steps is unknown; None without steps."""
    return None if step is None else f"{step}/{total}" if total is not None else str(step)


def size(count: float) -> str:
    """Bytes in at most five columns, in steps of 1024: '0', '812', '3.1K', '24G'."""
    for unit in ("", "K", "M", "G", "T"):
        if count < 999.5 or unit == "T":
            return f"{count:.1f}{unit}" if unit and count < 9.95 else f"{count:.0f}{unit}"
        count /= 1024
    raise AssertionError


def seconds(value: float) -> str:
    """Seconds, as '0.0123', '1.230', '123'."""
    return f"{value:.4f}" if value < 0.0995 else f"{value:.3f}" if value < 9.995 else f"{value:.0f}"


def ms(value_s: float) -> str:
    """Seconds as milliseconds: '5.44'."""
    return f"{value_s * 1e3:.2f}"


def duration(value_s: float) -> str:
    """A duration, as '64.6 s', '3.5 min', '2.1 h'."""
    if value_s < 120:
        return f"{value_s:.1f} s"
    return f"{value_s / 60:.1f} min" if value_s < 7200 else f"{value_s / 3600:.1f} h"


def with_bounds(value_s: float, bounds_s: Sequence[float]) -> str:
    """A predicted duration with its bounds in the same unit, as '3.1 h [2.9, 3.5]'; without bounds the duration."""
    text = duration(value_s)
    if not bounds_s:
        return text
    unit_s = {"s": 1, "min": 60, "h": 3600}[text.partition(" ")[2]]
    low, high = (f"{bound_s / unit_s:.1f}" for bound_s in bounds_s)
    return f"{text} [{low}, {high}]"


def between(bounds: tuple[float, float], show: Callable[[float], str]) -> str:
    """The bounds of a number at 90 %: '54.1 to 61.0 s'. A unit that both have is written once."""
    low, high = map(show, bounds)
    (_, _, unit), (_, _, same) = low.partition(" "), high.partition(" ")
    return f"{low.removesuffix(f' {unit}') if unit and unit == same else low} to {high}"


def moment(time_s: float) -> str:
    """A time on this machine's clock, as '2026-11-23 15:32:05 UTC'."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(time_s))


def minute(time_s: float) -> str:
    """The same to the minute, as '2026-11-23 15:32'."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))
