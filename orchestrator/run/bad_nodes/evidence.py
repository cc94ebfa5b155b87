"""Which hosts the end of an attempt speaks against. A pure function of its record.

Two causes do: a lost host, and a hang of the ranks of one host that the host itself explains, since a wrapper there
does not answer or a rank waits for a disk. All others do not:

- a killed rank, a full memory, a full disk and a time limit follow from what the user asked for;
- an error of the program, a wrong configuration and a missing image would be the same on every host;
- a rank that is at another place in its program than the others, or that somebody stopped, may be as its user wrote it;
- a lost connection names the rank that noticed, not the one that was gone;
- a launcher that put a rank elsewhere names no host that is bad.
"""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.run.folder.how_ended import WAITS_FOR_DISK
from torusrun.orchestrator.run.folder.records import End

REASONS = {Cause.HOST_LOST: "lost", Cause.HANG: "hung"}
LARGEST_SHARE = 4  # more than one host of each four: they share a switch, a power supply, or the network


def suspects(end: End, hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts that the end speaks against, of the `hosts` of the attempt; () if it does not name them.

    An end that names many hosts of the attempt, or all, says that one of them is bad, or a thing that they share.
    """
    if end.cause not in REASONS or (end.cause is Cause.HANG and not _explains_the_hang(end)):
        return ()
    named = tuple(dict.fromkeys(end.hosts))
    return named if len(named) == 1 or LARGEST_SHARE * len(named) <= len(set(hosts)) else ()


def _explains_the_hang(end: End) -> bool:
    """Whether a hang is that of one host: a wrapper that does not answer, or a rank that waits for a disk."""
    if len(set(end.hosts)) != 1 or "frame" in end.evidence:
        return False
    return end.evidence.get("process", WAITS_FOR_DISK) == WAITS_FOR_DISK
