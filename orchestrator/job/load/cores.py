"""How busy the cores of a job are, from /proc/stat."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

WITHOUT_GUESTS = 8  # user, nice, system, idle, iowait, irq, softirq, steal; user includes the time of guests
IDLE = (3, 4)  # idle, iowait


@dataclass(frozen=True)
class CpuTime:
    """The time that some cores worked, and all their time, in clock ticks since the start of the node."""

    worked: int
    all: int

    def share(self, before: CpuTime) -> float | None:
        """The share of the time since `before` in which the cores worked; None if no time has passed."""
        passed = self.all - before.all
        return min(max((self.worked - before.worked) / passed, 0.0), 1.0) if passed > 0 else None


def cpu_time(stat: str, cores: Collection[int]) -> CpuTime:
    """The time of these cores together, from the text of /proc/stat. Raises ValueError if it is cut off."""
    worked = total = 0
    for line in stat.splitlines():
        name, *words = line.split() or [""]
        if not name.startswith("cpu"):
            break
        if name[3:].isdigit() and int(name[3:]) in cores:
            ticks = [int(word) for word in words[:WITHOUT_GUESTS]]
            total += sum(ticks)
            worked += sum(ticks) - sum(ticks[n] for n in IDLE if n < len(ticks))
    return CpuTime(worked, total)
