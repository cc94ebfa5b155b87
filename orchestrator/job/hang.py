"""A run that makes no progress: which rank holds it up, from what the wrappers and the stacks of the ranks say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.base.states import State
from orchestrator.network.placement.mapping import Placement
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


def hung(placement: Placement, where: Mapping[int, Where], idle_s: float, at: str) -> End:
    """The end of an attempt without progress for `idle_s` seconds; `at` is ' after step 57', or '' before the first."""
    state, which = _culprits(placement, where)
    limit = " (hang_timeout)" if state is State.FAILED else ""
    return End(state, f"no progress for {idle_s:.0f} s{at}{limit}: {which}; the ranks' stacks are in their logs")


def silent(placement: Placement, silences_s: Mapping[str, float], limit_s: float, at: str) -> End | None:
    """The end of an attempt that waits for hosts of which nothing is heard, None while all are heard of.

    `silences_s` says how many seconds longer each host is silent than the one last heard of.
    """
    hosts = [host for host, silent_s in silences_s.items() if silent_s > limit_s]
    if not hosts:
        return None
    which = ", ".join(f"{host} (ranks {_numbers(placement, host)})" for host in hosts)
    longest_s = max(silences_s[host] for host in hosts)
    reason = f"{which} silent for {longest_s:.0f} s, and no step came{at}: the host is gone, or its link is cut"
    return End(State.NODE_FAIL, reason)


def _numbers(placement: Placement, host: str) -> str:
    return ", ".join([str(n) for n, slot in enumerate(placement.slots) if slot.host == host][:8])


def _culprits(placement: Placement, where: Mapping[int, Where]) -> tuple[State, str]:
    ranks = range(len(placement.slots))
    names = {n: f"rank {n} ({slot.host}, local rank {slot.local_rank})" for n, slot in enumerate(placement.slots)}
    known = {n: where.get(n, Where()) for n in ranks}
    if stuck := [n for n in ranks if known[n].state in STANDS]:
        return State.FAILED, f"{_listed(names, stuck)}: {STANDS[known[stuck[0]].state or '']}"
    silent = [n for n in ranks if known[n].state is None]
    if len(silent) == len(ranks):
        return State.FAILED, "no wrapper of a rank answers"
    if silent:
        return _silent(placement, names, silent)
    apart = [n for n in ranks if known[n].stack and not known[n].waits_for_others]
    if apart and len(apart) < len(ranks):
        where_to = known[apart[0]].stack[0]
        return State.FAILED, f"{_listed(names, apart)} is not where the others wait for it: at {where_to}"
    frame = next((known[n].stack[0] for n in ranks if known[n].stack), "")
    return State.FAILED, "all ranks are at work or wait for one another" + (f", the first at {frame}" if frame else "")


def _silent(placement: Placement, names: Mapping[int, str], silent: Sequence[int]) -> tuple[State, str]:
    """Wrappers that do not answer: several on one host, and none there that does, mean the host."""
    host = placement.slots[silent[0]].host
    there = [n for n, slot in enumerate(placement.slots) if slot.host == host]
    if len(there) > 1 and set(there) <= set(silent):
        return State.NODE_FAIL, f"{host} does not answer, nor do its ranks {', '.join(map(str, there[:8]))}"
    return State.FAILED, f"the wrapper of {_listed(names, silent)} does not answer"


def _listed(names: Mapping[int, str], ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
    return f"{names[ranks[0]]}{more}"


def stack(log: Sequence[str]) -> list[str]:
    """The frames of the main thread in the last stack that faulthandler wrote, as 'file:line function'; [] without one.

    It writes the thread that runs, or else the main thread, last of all threads.
    """
    begins = [number for number, line in enumerate(log) if STACK.match(line)]
    if not begins:
        return []
    frames = (FRAME.match(line) for line in log[begins[-1] + 1 :])
    return [f"{match[1]}:{match[2]} {match[3]}" for match in frames if match]
