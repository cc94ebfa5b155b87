"""What the launcher wrote about hosts that were lost and ranks that were killed: they could not say so themselves.

The words are those of Open MPI 4.1 and 5 (help-errmgr-base.txt, help-orterun.txt; 4.1.4 seen, 5 from memory), of
Slurm's srun (launch.c, step_launch.c; 22.05.8 seen) and of our own spawn.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

LOST = (
    re.compile(
        r"(?:ORTE|PRTE) has lost communication with a remote daemon\..*?Remote daemon: *\S+ on node (\S+)", re.DOTALL
    ),
    re.compile(r"srun: error: Node failure on (\S+)"),
)
NOTICED = re.compile(r"noticed that process rank (\d+) (?:with PID \d+ on (?:node )?\S+ )?exited on signal (\d+)")
SRUN = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): ([A-Z][A-Za-z ]+?)(?: \(core dumped\))?$", re.MULTILINE)
# strsignal(3) in English, which srun prints.
SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}


@dataclass(frozen=True)
class Words:
    """Hosts that the launcher lost, each with the line that says so, and ranks that a signal ended, with its number."""

    lost: Mapping[str, str] = field(default_factory=dict)
    killed: Mapping[int, int] = field(default_factory=dict)


def words(text: str) -> Words:
    """What a launcher's standard error says. Of several signals of a rank the first counts."""
    lost: dict[str, str] = {}
    for pattern in LOST:
        for match in pattern.finditer(text):
            for host in match[1].split(","):
                lost.setdefault(host, match[0].splitlines()[0].strip())
    killed: dict[int, int] = {}
    for rank, number in NOTICED.findall(text):
        killed.setdefault(int(rank), int(number))
    for ranks, how in SRUN.findall(text):
        for rank in _numbers(ranks) if how in SIGNALS else []:
            killed.setdefault(rank, SIGNALS[how])
    return Words(lost, killed)


def _numbers(text: str) -> list[int]:
    """'0-2,5' as 0, 1, 2, 5."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1) if first.isdigit() else []
    return found
