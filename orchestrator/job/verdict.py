"""Decides from all evidence why an attempt ended: which rank or host was the cause, and which only followed.

In order: hosts that the launcher lost; ranks that could not start; ranks that a signal ended; wrappers that the
launcher saw killed; a rank's own error, the first by time; a launcher that was killed; hosts all of whose ranks left
no record; other ranks without a record; ranks that lost their connection to another. A rank that was asked to stop is
never the cause.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.folder.end_words import ended, later, listed
from torusrun.orchestrator.folder.how_ended import How
from torusrun.orchestrator.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.job.witness import lost_hosts
from torusrun.orchestrator.network.hosts.same_host import same_host
from torusrun.orchestrator.network.placement.mapping import Placement
from torusrun.orchestrator.schedulers.launchers.launcher import Words
from torusrun.training.reporting.exits import EXIT_BAD_CONFIG

FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL)  # the scheduler may know the cause: a limit, too little memory
# Messages for a lost rank, of programs that have no exit code for it.
LOST_PEER = re.compile(
    r"connection (reset|closed|refused|was broken)|broken pipe|nccl(Remote|System)Error|socket timeout|timed out",
    re.IGNORECASE,
)
TRACEBACK, FRAME = "Traceback (most recent call last)", 'File "'
CHAINED = re.compile(r"another exception occurred:|direct cause of the following exception:")  # before a traceback
DEVICE_FULL = re.compile(r"(\[rank\d+\]: )?torch\.(cuda\.)?OutOfMemoryError: ")  # the last line of a traceback
UNSTARTED = {Meaning.MISPLACED: How.MISPLACED, Meaning.NO_IMAGE: How.NO_IMAGE}
OF_A_STACK = re.compile(
    r' *File "|(Current )?[Tt]hread 0x|Fatal Python error|Extension modules|\s*$'
)  # of faulthandler


@dataclass(frozen=True)
class Evidence:
    """The evidence about an attempt's ranks once its launcher has ended.

    `ends` are the records of the ranks that wrote one, `told` the ranks that were asked to stop, `stayed` those that
    had not ended when their launcher was given up, `said` the last lines of a rank's log, `launcher` the messages of
    the launcher, `launcher_code` its exit code (negative: a signal; None if the supervisor ended it), `here` the host
    of the supervisor, `step` the last step of this attempt, `done` whether the program recorded that it is done.
    `needs_record`: without that record it is not done. `says_later`: it has an exit code for "continue later", so
    exit code 0 means done even after a request to stop.
    """

    placement: Placement
    ends: Mapping[int, RankEnd]
    here: str = ""
    told: Collection[int] = ()
    stayed: Collection[int] = ()
    said: Mapping[int, Sequence[str]] = field(default_factory=dict)
    launcher: Words = field(default_factory=Words)
    launcher_code: int | None = None
    step: int | None = None
    done: bool = False
    needs_record: bool = True
    says_later: bool = True

    @property
    def well(self) -> bool:
        """Whether every rank left a record of a good end."""
        return len(self.ends) == self.placement.grid.ranks and all(end.good for end in self.ends.values())

    @property
    def wants_other_nodes(self) -> bool:
        """Whether the training ended after a checkpoint so that the next attempt has another number of nodes.

        One rank that reports it is enough: all agreed on it, and a launcher may end the others once the first ends.
        """
        return any(end.meaning is Meaning.OTHER_NODES for end in self.ends.values())

    @property
    def silent(self) -> list[int]:
        """The ranks that left no record of an end and were not asked to stop."""
        return [n for n in range(self.placement.grid.ranks) if n not in self.ends and n not in self.told]

    @property
    def silent_hosts(self) -> list[str]:
        """The hosts whose ranks left no record at all while ranks elsewhere did; never the supervisor's own."""
        heard = {self.placement.slots[n].host for n in (*self.ends, *self.told)}
        hosts = dict.fromkeys(self.placement.slots[n].host for n in self.silent)
        return [host for host in hosts if host not in heard and not same_host(host, self.here)] if heard else []

    @property
    def lost_hosts(self) -> list[str]:
        return lost_hosts(self.launcher, self.placement, self.here)

    def last_line(self, rank: int) -> str:
        """The last line of a rank's log that is not of a stack; '' without one."""
        lines = [line for line in self.said.get(rank, ()) if not OF_A_STACK.match(line)]
        return lines[-1].strip() if lines else ""

    def end(self, how: How, **more: Any) -> End:
        """An end with this attempt's placement and last step."""
        return ended(how, self.placement, step=self.step, **more)

    def cut_off(self, end: RankEnd) -> bool:
        """Whether a rank ended because another rank was lost: by its exit code, or by its last log lines."""
        if end.cut_off:
            return True
        by_itself = end.signal in (None, signal.SIGABRT) and end.meaning is Meaning.FAILED and not end.error
        if not by_itself or self.placement.grid.ranks == 1:
            return False
        # NCCL's watchdog aborts with a stack of C++ after its message.
        lines = self.said.get(end.rank, ()) if end.signal else self._last_error(end.rank)
        return any(LOST_PEER.search(line) for line in lines)

    def _last_error(self, rank: int) -> list[str]:
        """The last error in a rank's log: from its traceback on, or from the first of a chain of them.

        Without a traceback, what follows the last frame of a stack that is cut off, and the last line.
        """
        lines = self.said.get(rank, ())
        starts = [n for n, line in enumerate(lines) if TRACEBACK in line]
        while len(starts) > 1 and CHAINED.search(lines[starts[-1] - 1]):
            starts.pop()
        if starts:
            return list(lines[starts[-1] :])
        frames = [n for n, line in enumerate(lines) if FRAME in line]
        return [*(lines[frames[-1] :] if frames else ()), self.last_line(rank)]

    @property
    def first_cut_off(self) -> RankEnd | None:
        """The first rank that lost its connection to another."""
        cut_off = [end for end in self.ends.values() if not end.good and self.cut_off(end)]
        return min(cut_off, key=lambda end: (end.told, end.ended_s), default=None)


def verdict(evidence: Evidence, stop: End | None) -> End:
    """The attempt's end; `stop` is the end to record if the attempt was asked to stop before it was done."""
    unproven = evidence.well and not evidence.needs_record
    if evidence.done or (unproven and (evidence.says_later or not stop)):
        well = evidence.well and not evidence.stayed
        return evidence.end(How.ALL_WELL) if well else evidence.end(How.DONE_BEFORE, rest=_rest(evidence))
    if evidence.well and evidence.needs_record:
        return evidence.end(How.NOT_DONE)
    if stop:
        return later(stop, evidence.step)
    return next(_ends(evidence))


def _ends(evidence: Evidence) -> Iterator[End]:
    """The ends by every cause that the evidence shows, the first of which counts."""
    launcher, code, cut_off = evidence.launcher, evidence.launcher_code or 0, evidence.first_cut_off
    witness = cut_off.rank if cut_off else None
    if hosts := evidence.lost_hosts:
        yield evidence.end(How.HOST_LOST, hosts=hosts, said=next(iter(launcher.lost.values())), witness=witness)
    if end := _recorded(evidence):
        yield end
    if code < 0:  # the ends of its ranks follow from that
        yield evidence.end(How.LAUNCHER_KILLED, signal=signal_name(-code), certain=False)
    if code and not evidence.ends and not evidence.told:  # its last message is the best evidence
        if launcher.unreached:
            yield evidence.end(How.LAUNCHER_ERROR, why=launcher.unreached, certain=False)
        if launcher.last:
            yield evidence.end(How.LAUNCHER_FAILED, exit_code=code, said=launcher.last, certain=False)
    if hosts := evidence.silent_hosts:  # the scheduler may know more, maybe only minutes later
        yield evidence.end(How.HOST_NO_RECORD, hosts=hosts, witness=witness, certain=False)
    if evidence.silent:  # on hosts that live: their wrappers ended too fast to write a record
        yield evidence.end(How.NO_RECORD, ranks=evidence.silent, certain=False)
    if cut_off:  # for an unknown reason
        yield evidence.end(How.CUT_OFF, by=cut_off, said=evidence.last_line(cut_off.rank), certain=False)
    later = [end for end in evidence.ends.values() if end.meaning is Meaning.LATER and not end.told]
    if later and not evidence.needs_record:  # our training only stops if asked
        yield evidence.end(How.LATER, by=min(later, key=lambda end: end.ended_s))
    yield evidence.end(How.RANKS_SIGNALLED, certain=False)


def _recorded(evidence: Evidence) -> End | None:
    """The end by a rank that recorded its own cause, or whose wrapper the launcher saw killed."""
    bad = [end for end in evidence.ends.values() if not end.good and not end.told]
    own = [end for end in bad if not end.stopped and not evidence.cut_off(end)]
    culprit = min(own, key=lambda end: (not end.error, end.signal is None, end.ended_s), default=None)
    by_itself = culprit is None or (culprit.signal is None and not culprit.error)
    killed = evidence.launcher.killed  # a launcher ends the other wrappers by SIGTERM, also those that still start
    blamed = (n for n in killed if n in evidence.silent and not (culprit and killed[n] == signal.SIGTERM))
    wrapper = next(blamed, None)
    if by_itself and wrapper is not None:
        how = signal_name(evidence.launcher.killed[wrapper])
        return evidence.end(How.WRAPPER_KILLED, ranks=[wrapper], signal=how, certain=False)
    return _of_rank(evidence, culprit) if culprit else None


def _of_rank(evidence: Evidence, culprit: RankEnd) -> End:
    """The end by a rank that failed on its own, was killed, or did not start."""
    if culprit.error:
        return evidence.end(UNSTARTED.get(culprit.meaning, How.NOT_STARTED), by=culprit)
    if culprit.signal is not None:
        return evidence.end(How.KILLED, by=culprit, certain=culprit.signal not in FROM_OUTSIDE)
    if culprit.meaning is Meaning.UNSAVED:  # rank 0 logs why, but others may end first, which stops it
        return evidence.end(How.UNSAVED, ranks=[0], said=evidence.last_line(0))
    said, again = evidence.last_line(culprit.rank), culprit.meaning is not Meaning.NEVER
    return evidence.end(_own_error(evidence, culprit), by=culprit, said=said, again=again)


def _own_error(evidence: Evidence, culprit: RankEnd) -> How:
    if any(DEVICE_FULL.match(line) for line in evidence.said.get(culprit.rank, ())):
        return How.OUT_OF_DEVICE_MEMORY
    ours = evidence.needs_record
    return How.BAD_CONFIGURATION if ours and culprit.exit_code == EXIT_BAD_CONFIG else How.FAILED


def _rest(evidence: Evidence) -> str:
    """Why the processes of a training that is done did not all end well."""
    if evidence.stayed:
        return f"the wrappers of {listed(evidence.stayed)} did not end by themselves"
    for end in sorted(evidence.ends.values(), key=lambda end: end.ended_s):
        if not end.good:
            return end.words
    missing = [n for n in range(evidence.placement.grid.ranks) if n not in evidence.ends]
    return f"{listed(missing)} left no record of an end"
