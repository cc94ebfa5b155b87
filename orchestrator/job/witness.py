"""Reads the launcher's messages: lost hosts, killed ranks, and its last message.

Lost hosts and killed ranks leave no records of their own. The form of a message shows which launcher wrote it.
"""

from __future__ import annotations

import re

from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.log_errors.kinds import LineKind, kind_of
from torusrun.orchestrator.run.folder.log_errors.last_error import last_error
from torusrun.orchestrator.schedulers.launchers import FAMILIES
from torusrun.orchestrator.schedulers.launchers.launcher import Words
from torusrun.orchestrator.schedulers.remote_shell import FAILED

LONGEST_QUOTE = 300
SEPARATOR = re.compile(r"[-=]{20,}")
OURS = "torusrun: "


def words(text: str) -> Words:
    """The content of a launcher's standard error."""
    lost: dict[str, str] = {}
    killed: dict[int, int] = {}
    for launcher in FAMILIES:
        lost |= launcher.lost(text)
        killed |= launcher.killed(text)
    ours = next((line for line in text.splitlines() if line.startswith(FAILED)), "")
    reason = next(filter(None, (launcher.reason(text) for launcher in FAMILIES)), "")
    return Words(lost, killed, reason[:LONGEST_QUOTE] or last(text), ours.removeprefix(OURS))


def lost_hosts(said: Words, placement: Placement, here: str) -> list[str]:
    """The hosts that the launcher lost, by their names in the placement; never `here`, the supervisor's own."""
    known = [host for host in placement.hosts if any(same_host(host, other) for other in said.lost)]
    return [host for host in known if not same_host(host, here)]


def last(text: str) -> str:
    """The last message on one line: a block between two separators, as MPIs write them, or else the last error."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(OURS)]
    if lines and SEPARATOR.fullmatch(lines[-1]):
        block = lines[:-1]
        starts = [n for n, line in enumerate(block) if SEPARATOR.fullmatch(line)]
        message = " ".join(block[starts[-1] + 1 if starts else 0 :])
        if kind_of(message) is not LineKind.CLOSING:  # else it only repeats that a process failed
            return message[:LONGEST_QUOTE]
    return last_error([line for line in lines if not SEPARATOR.fullmatch(line)]).reason[:LONGEST_QUOTE]
