"""Decides from all evidence why an attempt ended: which rank or host was the cause, and which only followed.

In order: hosts that the launcher lost; ranks that could not start; ranks that a signal ended; wrappers that the
launcher saw killed; a rank's own error, the first by time; a launcher that was killed; hosts all of whose ranks left
no record; other ranks without a record; a rank that ended well before others lost it; ranks that lost their connection
to another. A rank that was asked to stop is never the cause.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.job.gather import lost_hosts
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.how_ended import NEAR, How, ended, later, listed
from torusrun.orchestrator.run.folder.log_errors.last_error import LoggedError
from torusrun.orchestrator.run.folder.records import End, Meaning, RankEnd
from torusrun.orchestrator.schedulers.launchers import Words
from torusrun.training.reporting.exits import EXIT_BAD_CONFIG

FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL)  # the scheduler may know the cause: a limit, too little memory
UNSTARTED = {Meaning.MISPLACED: How.MISPLACED, Meaning.NO_IMAGE: How.NO_IMAGE, Meaning.NOT_READY: How.FAILED}
SKEW_S = 1.0  # between the clocks of two hosts
MOST_LOGS = 256  # the most logs that are read: those of the ranks that failed first


@dataclass(frozen=True)
class Evidence:
    """The evidence about an attempt's ranks once its launcher has ended."""

    placement: Placement
    ends: Mapping[int, RankEnd]  # the records, by the ranks that wrote them
    here: str = ""  # the host of the supervisor
    told: Collection[int] = ()  # the ranks that were asked to stop
    stayed: Collection[int] = ()  # the ranks that had not ended when their launcher was given up
    error: Callable[[int], LoggedError] = lambda rank: LoggedError()  # in a rank's log
    launcher: Words = field(default_factory=Words)  # its messages
    launcher_code: int | None = None  # its exit code, negative for a signal; None if the supervisor ended it
    step: int | None = None  # the last of this attempt
    done: bool = False  # whether the program recorded that it is done
    judges: Collection[int] = ()  # the ranks that judge the main role's checkpoints
    needs_record: bool = True  # without that record it is not done
    says_later: bool = True  # it has an exit code for "continue later", so 0 means done, also after a request to stop

    @property
    def well(self) -> bool:
        """Whether every rank of the main role, and of roles that judge its checkpoints, left a record of a good end."""
        ranks = (*range(self.placement.grid.ranks), *self.judges)
        return all(rank in self.ends and self.ends[rank].good for rank in ranks)

    @property
    def silent(self) -> list[int]:
        """The ranks that left no record of an end and were not asked to stop."""
        return [n for n in range(len(self.placement.slots)) if n not in self.ends and n not in self.told]

    @property
    def silent_hosts(self) -> list[str]:
        """The hosts whose ranks left no record at all while ranks elsewhere did; never the supervisor's own."""
        heard = {self.placement.slots[n].host for n in (*self.ends, *self.told)}
        hosts = dict.fromkeys(self.placement.slots[n].host for n in self.silent)
        return [host for host in hosts if host not in heard and not same_host(host, self.here)] if heard else []

    def end(self, how: How, **more: Any) -> End:
        """An end with this attempt's placement and last step."""
        return ended(how, self.placement, step=self.step, **more)

    def cut_off(self, end: RankEnd) -> bool:
        """Whether a rank ended because another rank was lost: by its exit code, or by the error in its log."""
        if end.cut_off:
            return True
        by_itself = end.signal in (None, signal.SIGABRT) and end.meaning is Meaning.FAILED and not end.error
        if not by_itself or len(self.placement.slots) == 1:
            return False
        return self.error(end.rank).lost_peer

    @property
    def first_cut_off(self) -> RankEnd | None:
        """The first rank that lost its connection to another."""
        bad = sorted((end for end in self.ends.values() if not end.good), key=lambda end: (end.told, end.ended_s))
        return next(filter(self.cut_off, bad[:MOST_LOGS]), None)

    def left_before(self, cut_off: RankEnd) -> RankEnd | None:
        """The first rank that ended well by itself while others worked, which `cut_off` then lost."""
        well = (end for end in self.ends.values() if end.good and not end.told)
        left = [end for end in well if end.ended_s <= cut_off.ended_s + SKEW_S]
        return min(left, key=lambda end: end.ended_s, default=None)


def verdict(evidence: Evidence, stop: End | None) -> End:
    """The attempt's end; `stop` is the end to record if the attempt was asked to stop before it was done."""
    unproven = evidence.well and not evidence.needs_record
    if evidence.done or (unproven and (evidence.says_later or not stop)):
        well = evidence.well and not evidence.stayed
        return evidence.end(How.ALL_WELL) if well else evidence.end(How.DONE_BEFORE, rest=_rest(evidence))
    if evidence.well and evidence.needs_record:
        return evidence.end(How.NOT_DONE)
    if stop:
        return _overdue(evidence, stop) or later(stop, evidence.step)
    return next(_ends(evidence))


def _overdue(evidence: Evidence, stop: End) -> End | None:
    """The end at a time limit that ranks did not stop before; None if they did, or for another request to stop."""
    killed = [end.rank for end in evidence.ends.values() if end.told and end.signal == signal.SIGKILL]
    ranks = sorted({*killed, *evidence.stayed})
    if stop.cause is not Cause.TIME_LIMIT or not ranks:
        return None
    return evidence.end(How.TIME_OVER, ranks=ranks, limit=stop.reason.removesuffix(NEAR))


def _ends(evidence: Evidence) -> Iterator[End]:
    """The ends by every cause that the evidence shows, the first of which counts."""
    launcher, code, cut_off = evidence.launcher, evidence.launcher_code or 0, evidence.first_cut_off
    witness = cut_off.rank if cut_off else None
    if hosts := lost_hosts(launcher, evidence.placement, evidence.here):
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
        reason = evidence.error(cut_off.rank).reason
        if left := evidence.left_before(cut_off):
            yield evidence.end(How.LEFT_EARLY, by=left, said=reason, witness=witness)
        yield evidence.end(How.CUT_OFF, by=cut_off, said=reason, certain=False)
    later = [end for end in evidence.ends.values() if end.meaning is Meaning.LATER and not end.told]
    if later and not evidence.needs_record:  # our training only stops if asked
        yield evidence.end(How.LATER, by=min(later, key=lambda end: end.ended_s))
    yield evidence.end(How.RANKS_SIGNALLED, certain=False)


def _recorded(evidence: Evidence) -> End | None:
    """The end by a rank that recorded its own cause, or whose wrapper the launcher saw killed."""
    bad = [end for end in evidence.ends.values() if not (end.good or end.told or end.stopped)]
    # What ends a process from outside may end others by their errors before its own record has its time.
    bad.sort(key=lambda end: (not end.error, not end.starved, end.signal not in FROM_OUTSIDE, end.ended_s))
    culprit = next((end for end in bad[:MOST_LOGS] if not evidence.cut_off(end)), None)
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
    error = evidence.error(culprit.rank)
    if culprit.starved:
        return evidence.end(How.OUT_OF_MEMORY, by=culprit)
    if culprit.meaning is Meaning.UNSAVED:  # rank 0 logs why, but others may end first, which stops it
        return evidence.end(How.UNSAVED, ranks=[0], said=evidence.error(0).reason)
    if error.device_full:
        return evidence.end(How.OUT_OF_DEVICE_MEMORY, by=culprit, said=error.reason)
    if culprit.signal is not None:
        outside = culprit.signal in FROM_OUTSIDE
        reason = error.reason if error.known and not outside else ""
        return evidence.end(How.KILLED, by=culprit, said=reason, certain=not outside)
    again = culprit.meaning is not Meaning.NEVER
    if error.worker and error.worker.signal:
        certain = error.worker.signal not in FROM_OUTSIDE
        return evidence.end(How.KILLED, by=culprit, said=error.reason, again=again, certain=certain)
    ours = evidence.needs_record and culprit.exit_code == EXIT_BAD_CONFIG
    how = How.BAD_CONFIGURATION if ours else How.FAILED
    return evidence.end(how, by=culprit, said=error.reason, again=again)


def _rest(evidence: Evidence) -> str:
    """Why the processes of a training that is done did not all end well."""
    if evidence.stayed:
        return f"the wrappers of {listed(evidence.stayed)} did not end by themselves"
    for end in sorted(evidence.ends.values(), key=lambda end: end.ended_s):
        if not end.good:
            return end.words
    missing = [n for n in range(evidence.placement.grid.ranks) if n not in evidence.ends]
    return f"{listed(missing)} left no record of an end"
