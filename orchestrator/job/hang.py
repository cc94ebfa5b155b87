"""A run that makes no progress: which rank holds it up, from what the wrappers and the stacks of the ranks say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.network.placement.mapping import Placement
from orchestrator.runs.folder.end_words import ended
from orchestrator.runs.folder.how_ended import How
from orchestrator.runs.folder.records import End

NOT_BEGUN = "not begun"
STANDS = {
    NOT_BEGUN: "its program has not begun",
    "T": "it is stopped, as by SIGSTOP",
    "t": "it is stopped by a debugger",
    "D": "it waits for a disk or a file system",
    "Z": "it has ended, and nobody has noticed",
    "": "its process is gone",
}
STACK = re.compile(r"^Current thread 0x|^Thread 0x|^Stack \(most recent call first\)")
FRAME = re.compile(r'  File "([^"]+)", line (\d+) in (\S+)')
WAITS_FOR_OTHERS = re.compile(r"torch/distributed/|training/collectives/|training/meeting/")


@dataclass(frozen=True)
class Where:
    """Where a rank was when it was asked: the state of its process as in proc(5), and its stack, innermost frame first.

    `state` is None where its wrapper did not answer, NOT_BEGUN where the rank left no record of its start.
    """

    state: str | None = None
    stack: Sequence[str] = ()

    @property
    def waits_for_others(self) -> bool:
        """Whether its innermost frames, as far as they are known, belong to an exchange with other ranks."""
        return any(WAITS_FOR_OTHERS.search(frame) for frame in self.stack)


def hung(placement: Placement, where: Mapping[int, Where], idle_s: float, step: int | None) -> End:
    """The end of an attempt without progress for `idle_s` seconds after `step`, None before the first."""

    def end(how: How, ranks: Sequence[int] = (), **evidence: Any) -> End:
        return ended(how, placement, ranks=ranks, step=step, idle_s=idle_s, **evidence)

    ranks = range(len(placement.slots))
    known = {n: where.get(n, Where()) for n in ranks}
    if stuck := [n for n in ranks if known[n].state in STANDS]:
        return end(How.RANK_STANDS, stuck, process=STANDS[known[stuck[0]].state or ""])
    mute = [n for n in ranks if known[n].state is None]
    if len(mute) == len(ranks):
        return end(How.NO_WRAPPER)
    if mute:
        there = _whole_host(placement, mute)
        return end(How.HOST_NO_ANSWER, there) if there else end(How.WRAPPER_SILENT, mute)
    apart = [n for n in ranks if known[n].stack and not known[n].waits_for_others]
    if apart and len(apart) < len(ranks):
        return end(How.RANK_APART, apart, frame=known[apart[0]].stack[0])
    return end(How.ALL_WAIT, first_at=next((known[n].stack[0] for n in ranks if known[n].stack), ""))


def silent(placement: Placement, silences_s: Mapping[str, float], limit_s: float, step: int | None) -> End | None:
    """The end of an attempt that waits for hosts of which nothing is heard, None while all are heard of.

    `silences_s` says how many seconds longer each host is silent than the one last heard of.
    """
    hosts = [host for host, silent_s in silences_s.items() if silent_s > limit_s]
    if not hosts:
        return None
    longest_s = max(silences_s[host] for host in hosts)
    return ended(How.HOST_SILENT, placement, hosts=hosts, step=step, silent_s=longest_s)


def _whole_host(placement: Placement, mute: Sequence[int]) -> list[int]:
    """The ranks of the first host, if it has several and the wrapper of none answers: the host itself does not then."""
    host = placement.slots[mute[0]].host
    there = [n for n, slot in enumerate(placement.slots) if slot.host == host]
    return there if len(there) > 1 and set(there) <= set(mute) else []


def stack(log: Sequence[str]) -> list[str]:
    """The frames of the main thread in the last stack that faulthandler wrote, as 'file:line function'; [] without one.

    It writes the thread that runs, or else the main thread, last of all threads.
    """
    begins = [number for number, line in enumerate(log) if STACK.match(line)]
    if not begins:
        return []
    frames = (FRAME.match(line) for line in log[begins[-1] + 1 :])
    return [f"{match[1]}:{match[2]} {match[3]}" for match in frames if match]
