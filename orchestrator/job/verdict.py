"""How an attempt ended, from all evidence: which rank or host was the cause, and which only followed.

In order: hosts that the launcher lost; ranks that were not allowed to begin; ranks that a signal ended; wrappers that
the launcher saw killed; a rank's own error, the first by time; a launcher that was killed; hosts all of whose ranks
left no record; other ranks without a record; ranks that lost their connection to another. A rank that was told to end
is never the cause.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.base.states import State
from orchestrator.job.witness import Words
from orchestrator.network.placement.mapping import Placement, same_host
from orchestrator.runs.folder.records import End, Meaning, RankEnd, signal_name
from training.counted import all_of

FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL)  # the scheduler may know who sent them: a limit, the memory's end
NOT_DONE = "the training did not record that it is done"
# What programs that have no exit code for it write when another rank is gone.
LOST_PEER = re.compile(
    r"connection (reset|closed|refused|was broken)|broken pipe|nccl(Remote|System)Error|socket timeout|timed out",
    re.IGNORECASE,
)
OF_A_STACK = re.compile(
    r' *File "|(Current )?[Tt]hread 0x|Fatal Python error|Extension modules|\s*$'
)  # of faulthandler


@dataclass(frozen=True)
class StopReason:
    """Why the ranks were asked to stop before they were done."""

    state: State
    reason: str
    certain: bool


@dataclass(frozen=True)
class Evidence:
    """What is known of an attempt's ranks once its launcher has ended.

    `ends` are the records of ranks that could write one, `told` the ranks that were asked to end, `stayed` those that
    had not ended when their launcher was given up, `said` the last lines of a rank's log, `launcher` what the launcher
    wrote, `launcher_code` its exit code (negative: a signal; None where the supervisor ended it), `here` the host of
    the supervisor, `at` how far the program came in words, `done` whether it recorded that it is done.
    `needs_record` says that it is not done without that record, `says_later` that it has an exit code for "go on
    later", so that exit code 0 means done even after a request to stop.
    """

    placement: Placement
    ends: Mapping[int, RankEnd]
    here: str = ""
    told: Collection[int] = ()
    stayed: Collection[int] = ()
    said: Mapping[int, Sequence[str]] = field(default_factory=dict)
    launcher: Words = field(default_factory=Words)
    launcher_code: int | None = None
    at: str = ""
    done: bool = False
    needs_record: bool = True
    says_later: bool = True

    @property
    def well(self) -> bool:
        """Whether every rank left a record of a good end."""
        return len(self.ends) == self.placement.grid.ranks and all(end.good for end in self.ends.values())

    @property
    def wants_other_nodes(self) -> bool:
        """Whether the training ended after a checkpoint, for the next attempt to have another number of nodes.

        One rank that says so is enough: all agreed on it, and a launcher may end the others once the first is gone.
        """
        return any(end.meaning is Meaning.OTHER_NODES for end in self.ends.values())

    @property
    def silent(self) -> list[int]:
        """The ranks that left no record and were not told to end either, so that nobody else ended them."""
        return [n for n in range(self.placement.grid.ranks) if n not in self.ends and n not in self.told]

    @property
    def silent_hosts(self) -> list[str]:
        """The hosts none of whose ranks said anything, while ranks elsewhere did; never the supervisor's own."""
        heard = {self.placement.slots[n].host for n in (*self.ends, *self.told)}
        hosts = dict.fromkeys(self.placement.slots[n].host for n in self.silent)
        return [host for host in hosts if host not in heard and not same_host(host, self.here)] if heard else []

    @property
    def lost_hosts(self) -> list[str]:
        """The hosts that the launcher lost, by the placement's names for them."""
        lost = self.launcher.lost
        known = [host for host in self.placement.hosts if any(same_host(host, other) for other in lost)]
        return [host for host in known if not same_host(host, self.here)]

    def ranks_of(self, host: str) -> list[int]:
        return [n for n, slot in enumerate(self.placement.slots) if slot.host == host]

    def quote(self, rank: int) -> str:
        """': ' and the last line that a rank said of itself, '' where there is none."""
        lines = [line for line in self.said.get(rank, ()) if not OF_A_STACK.match(line)]
        return f": {lines[-1].strip()}" if lines else ""

    def name(self, rank: int) -> str:
        """'rank 3 (node2, local rank 1)'."""
        slot = self.placement.slots[rank]
        return f"rank {rank} ({slot.host}, local rank {slot.local_rank})"

    def cut_off(self, end: RankEnd) -> bool:
        """Whether a rank ended since another one was gone: by its exit code, or by what it said last."""
        if end.cut_off:
            return True
        by_itself = end.signal in (None, signal.SIGABRT) and end.meaning is Meaning.FAILED and not end.error
        return by_itself and any(LOST_PEER.search(line) for line in self.said.get(end.rank, ()))


def verdict(evidence: Evidence, stop: StopReason | None) -> End:
    """The attempt's end."""
    every = all_of(evidence.placement.grid.ranks, "rank")
    unproven = evidence.well and not evidence.needs_record
    if evidence.done or (unproven and (evidence.says_later or not stop)):
        all_well = evidence.well and not evidence.stayed
        return End(State.COMPLETED, f"{every} ended well" if all_well else _done(evidence))
    if evidence.well and evidence.needs_record:
        return End(State.FAILED, f"{every} ended with exit code 0, but {NOT_DONE}; see the ranks' logs")
    if stop:
        return End(stop.state, f"{stop.reason}{evidence.at}", stop.certain)
    return (
        _lost_host(evidence)
        or _recorded(evidence)
        or _killed_launcher(evidence)
        or _failed_launcher(evidence)
        or _silent_host(evidence)
        or _silent_ranks(evidence)
        or _only_cut_off(evidence)
        or _later(evidence)
        or End(State.CANCELLED, f"the ranks received a request to stop from outside{evidence.at}", certain=False)
    )


def _lost_host(evidence: Evidence) -> End | None:
    """A host that the launcher has lost, by its own words."""
    if not (hosts := evidence.lost_hosts):
        return None
    said = next(iter(evidence.launcher.lost.values()))
    return End(State.NODE_FAIL, f"lost {_places(evidence, hosts)}{evidence.at}: {said}{_witness(evidence)}")


def _recorded(evidence: Evidence) -> End | None:
    """A rank that says itself what ended it, or whose wrapper the launcher saw killed."""
    bad = [end for end in evidence.ends.values() if not end.good and not end.told]
    own = [end for end in bad if not end.stopped and not evidence.cut_off(end)]
    culprit = min(own, key=lambda end: (not end.error, end.signal is None, end.ended_s), default=None)
    if culprit is None or (culprit.signal is None and not culprit.error):
        wrapper = next((n for n in evidence.launcher.killed if n in evidence.silent), None)
        if wrapper is not None:
            how = signal_name(evidence.launcher.killed[wrapper])
            return End(State.FAILED, f"the wrapper of {evidence.name(wrapper)} was killed by {how}{evidence.at}", False)
    if culprit is None:
        return None
    if culprit.meaning is Meaning.UNSAVED:  # rank 0 knows why, though others may end first and have it told to end
        return End(State.FAILED, f"{evidence.name(0)} could not write its last files{evidence.at}{evidence.quote(0)}")
    quoted = evidence.quote(culprit.rank) if culprit.signal is None and not culprit.error else ""
    again = culprit.meaning is not Meaning.NEVER
    return End(State.FAILED, f"{culprit.words}{evidence.at}{quoted}", culprit.signal not in FROM_OUTSIDE, again)


def _later(evidence: Evidence) -> End | None:
    """A program that stopped by itself, to go on in another attempt: not our training, which stops only when told."""
    stopped = [end for end in evidence.ends.values() if end.meaning is Meaning.LATER and not end.told]
    if evidence.needs_record or not stopped:
        return None
    first = min(stopped, key=lambda end: end.ended_s)
    return End(State.CANCELLED, f"{first.words}{evidence.at}; `torusrun resume` continues the run")


def _killed_launcher(evidence: Evidence) -> End | None:
    """The launcher itself, ended by a signal: what became of its ranks follows from that."""
    if evidence.launcher_code is None or evidence.launcher_code >= 0:
        return None
    how = signal_name(-evidence.launcher_code)
    return End(State.FAILED, f"the launcher of the ranks was killed by {how}{evidence.at}", certain=False)


def _failed_launcher(evidence: Evidence) -> End | None:
    """A launcher that failed before any rank left a record: its last words say more than anybody else can."""
    if evidence.ends or evidence.told or not evidence.launcher_code:
        return None
    if evidence.launcher.unreached:
        return End(State.FAILED, evidence.launcher.unreached, certain=False)
    if not evidence.launcher.last:
        return None
    how = f"the launcher ended with exit code {evidence.launcher_code}, and no rank left a record"
    return End(State.FAILED, f"{how}{evidence.at}: {evidence.launcher.last}", certain=False)


def _silent_host(evidence: Evidence) -> End | None:
    """A host that fell silent as a whole: the scheduler may know more of it, and may take minutes to know it."""
    if not (hosts := evidence.silent_hosts):
        return None
    reason = f"{_places(evidence, hosts)} fell silent{evidence.at}: no rank there left a record of its end"
    reason += _witness(evidence)
    return End(State.NODE_FAIL, reason, certain=False)


def _silent_ranks(evidence: Evidence) -> End | None:
    """Ranks that left no record on hosts that live: their wrappers were ended by what leaves no time for one."""
    if not evidence.silent:
        return None
    who = evidence.name(evidence.silent[0]) if len(evidence.silent) == 1 else _ranks(evidence.silent)
    reason = f"{who} left no record of an end{evidence.at}: killed, most likely; see job.err"
    return End(State.FAILED, reason, certain=False)


def _only_cut_off(evidence: Evidence) -> End | None:
    """Ranks that lost one another, and none of them knows why."""
    if not (witness := _first_cut_off(evidence)):
        return None
    reason = f"{witness.words}{evidence.at}, and no rank says why{evidence.quote(witness.rank)}"
    return End(State.FAILED, reason, certain=False)


def _witness(evidence: Evidence) -> str:
    """The first rank elsewhere that noticed, as '; rank 0 (...) lost its connection to another rank'."""
    witness = _first_cut_off(evidence)
    return f"; {evidence.name(witness.rank)} lost its connection to another rank" if witness else ""


def _first_cut_off(evidence: Evidence) -> RankEnd | None:
    cut_off = [end for end in evidence.ends.values() if not end.good and evidence.cut_off(end)]
    return min(cut_off, key=lambda end: (end.told, end.ended_s), default=None)


def _done(evidence: Evidence) -> str:
    """A training that is done, and why it has not ended well as a process."""
    return f"the training recorded that it is done; {_rest(evidence)}"


def _rest(evidence: Evidence) -> str:
    if evidence.stayed:
        return f"the wrappers of {_ranks(evidence.stayed)} did not end by themselves"
    for end in sorted(evidence.ends.values(), key=lambda end: end.ended_s):
        if not end.good:
            return end.words
    missing = [n for n in range(evidence.placement.grid.ranks) if n not in evidence.ends]
    return f"{_ranks(missing)} left no record of an end"


def _places(evidence: Evidence, hosts: Sequence[str]) -> str:
    """'node2 (ranks 2, 3), node3 (ranks 4, 5)'."""
    return ", ".join(f"{host} ({_ranks(evidence.ranks_of(host))})" for host in hosts)


def _ranks(ranks: Collection[int]) -> str:
    """'rank 3' or 'ranks 4, 5, 6', at most eight of them."""
    listed = ", ".join(map(str, list(ranks)[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
