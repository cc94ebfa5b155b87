"""The suspicion that an attempt is ending while its scheduler still reports it as running, from its run folder.

A scheduler takes from half a minute to many minutes to report a lost node. Ranks that lost a connection, and the
supervisor's pulse, show it earlier. This is no proof, so it changes only the words, not the state.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import read_bytes
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.at_work import Slow
from torusrun.orchestrator.run.folder.records import RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.state.clocks import ahead_s
from torusrun.orchestrator.run.state.pace import duration
from torusrun.training.counted import first_of

SILENT_S = 30.0  # the supervisor touches its pulse every 5 s
LEAVE_S = 10.0  # the time for ranks on living hosts to end and record it, after the first end
MOST_ENDS = 64  # in one read
LARGEST_NAME_BYTES = 256


def of_attempt(attempt: Attempt, now_s: float) -> str:
    """'suspected: ...', or '' if there is no suspicion, as of `now_s` (of time.time()).

    While nothing is wrong, it costs a stat and a listing of a folder. A suspicion is checked again by the clock of the
    file system: this machine's clock may differ from the nodes'.
    """
    return _of_attempt(attempt, now_s) and _of_attempt(attempt, now_s + ahead_s(attempt.folder))


def remarks(attempt: Attempt, now_s: float) -> str:
    """What is suspected of a running attempt, and which of its ranks are slow; '' if nothing."""
    return "; ".join(filter(None, (of_attempt(attempt, now_s), slow_ranks(attempt))))


def slow_ranks(attempt: Attempt) -> str:
    """'slow: rank 3 computes ...', or '' if no rank or host is slower than the others (slow.py)."""
    found = Slow.read(attempt.slow)
    return found.words if found else ""


def _of_attempt(attempt: Attempt, now_s: float) -> str:
    pulse_age_s, recorded = _pulse_age_s(attempt, now_s), attempt_folders.recorded(attempt)
    ends = _ends(attempt, sorted(recorded["end"]))
    placement = attempt_folders.placed(attempt)[1] if any(not end.good for end in ends) else {}
    host = _host(attempt) if pulse_age_s is not None and pulse_age_s > SILENT_S else ""
    return suspicion(placement, recorded["end"] | recorded["told"], ends, pulse_age_s, host, now_s)


def _pulse_age_s(attempt: Attempt, now_s: float) -> float | None:
    """The age of the supervisor's pulse in seconds; None if there is no pulse."""
    try:
        found = attempt.pulse.lstat()
    except OSError:
        return None
    return max(now_s - found.st_mtime, 0.0) if stat.S_ISREG(found.st_mode) else None


def _host(attempt: Attempt) -> str:
    """The host of the supervisor, from its pulse; '' if unknown."""
    try:
        return read_bytes(attempt.pulse, LARGEST_NAME_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def _ends(attempt: Attempt, ended: Sequence[int]) -> list[RankEnd]:
    """The end records of the first MOST_ENDS of these ranks, as far as readable; `ended_s` is the file's time."""
    found = []
    for rank in ended[:MOST_ENDS]:
        with contextlib.suppress(SiteError, OSError):
            path = attempt.rank_end(rank)
            found.append(replace(RankEnd.read(path), ended_s=path.stat().st_mtime))
    return found


def suspicion(
    placement: Mapping[str, Sequence[int]],
    heard: Collection[int],
    ends: Sequence[RankEnd],
    pulse_age_s: float | None,
    supervisor: str,
    now_s: float,
) -> str:
    """'suspected: ...', or '' if there is no suspicion.

    `placement` has the ranks of every host, `heard` the ranks that recorded an end or a request to end; `ends` are the
    ends that were read. `pulse_age_s` is None if there is no pulse. `supervisor` is the host that the pulse names, ''
    if none. `now_s` is by the same clock as the times of `ends`.
    """
    found = [_of_ranks(placement, heard, ends, now_s), _of_supervisor(pulse_age_s, supervisor)]
    return f"suspected: {'; '.join(filter(None, found))}" if any(found) else ""


def _of_ranks(
    placement: Mapping[str, Sequence[int]], heard: Collection[int], ends: Sequence[RankEnd], now_s: float
) -> str:
    bad = sorted((end for end in ends if end.failed), key=lambda end: end.ended_s)
    culprit = next((end for end in bad if not end.cut_off), None)
    if culprit:
        return f"it is ending: {culprit.words}, {_ago(culprit, now_s)}"
    if not bad:
        return ""
    witness = bad[0]
    lost = f"rank {witness.rank} ({witness.host}) lost its connection to another rank {_ago(witness, now_s)}"
    silent = {host: ranks for host, ranks in placement.items() if not any(rank in heard for rank in ranks)}
    if now_s - witness.ended_s < LEAVE_S or not silent:
        return f"a rank is gone, or cannot be reached: {lost}"
    ranks = [rank for there in silent.values() for rank in there]
    if len(silent) == 1:
        return f"{next(iter(silent))} is gone (its {_ranks(ranks)} silent, while {lost})"
    return f"at least one of {first_of(list(silent))} is gone (their {_ranks(ranks)} silent, while {lost})"


def _of_supervisor(pulse_age_s: float | None, host: str) -> str:
    if pulse_age_s is None or pulse_age_s <= SILENT_S:
        return ""
    where = f" on {host}" if host else ""
    return f"the supervisor{where} is silent for {duration(pulse_age_s)}: it or its host is gone or stopped"


def _ago(end: RankEnd, now_s: float) -> str:
    return f"{duration(max(now_s - end.ended_s, 0.0))} ago"


def _ranks(ranks: Sequence[int]) -> str:
    """'rank 4 is' or 'ranks 4-7, 12-15 are'."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    words = [f"{first}-{last}" if last > first else str(first) for first, last in spans]
    return f"rank {words[0]} is" if len(ranks) == 1 else f"ranks {first_of(words)} are"
