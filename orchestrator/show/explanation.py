"""Why an attempt ended: its cause, the ranks that failed by time, the first error, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Event
from torusrun.orchestrator.run.folder.log_errors.last_error import read_last
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.plan.missing import how_to_install
from torusrun.orchestrator.show.advice import ADVICE
from torusrun.orchestrator.show.logs.files import Logs
from torusrun.orchestrator.show.logs.ranks import bad_ends, who, written_s

MOST_ENDS = 8
MOST_LINES = 40  # of the first error: its end


@dataclass(frozen=True)
class Explanation:
    """The state of an attempt and, when it is over, the reason.

    `cause` is '' before its end, and `meaning` says it in words. `hosts`, `ranks`, `step` and `evidence` are those of
    the end record. `failed` are the ends of ranks that failed, by the time of their hosts. `error` is the end of the
    first error, `error_of` where it was written ('rank 3', 'the job').
    """

    run: str
    attempt: int
    state: State
    reason: str
    cause: str = ""
    meaning: str = ""
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    step: int | None = None
    evidence: Mapping[str, str] | None = None
    failed: tuple[RankEnd, ...] = ()
    error_of: str = ""
    error: tuple[str, ...] = ()
    to_do: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        failed = [
            {
                "rank": end.rank,
                **({"role": end.role, "role_rank": end.role_rank} if end.role else {}),
                "host": end.host,
                "ended_s": end.ended_s,
                "words": end.words,
            }
            for end in self.failed
        ]
        return {**asdict(replace(self, failed=())), "state": self.state.value, "failed": failed}

    def lines(self) -> Iterator[str]:
        """The explanation as text."""
        yield f"{self.run} is {self.state.value} (attempt {self.attempt}){f': {self.reason}' if self.reason else ''}"
        if self.cause:
            yield f"cause     {self.cause}: {self.meaning}"
        for key, value in (self.evidence or {}).items():
            yield f"evidence  {plain(key)}: {plain(value)}"
        yield from _titled("failed", self._by_time())
        yield from _titled("error", [f"of {self.error_of}:"] if self.error else [])
        yield from (f"    {line}" for line in self.error)
        yield from _titled("to do", self.to_do)

    def _by_time(self) -> Iterator[str]:
        for end in self.failed[:MOST_ENDS]:
            yield f"{end.ended_s - self.failed[0].ended_s:+8.1f} s  {plain(end.words)}"
        if len(self.failed) > MOST_ENDS:
            yield f"and {len(self.failed) - MOST_ENDS} more"


def _titled(title: str, texts: Iterable[str]) -> Iterator[str]:
    for n, text in enumerate(texts):
        yield f"{'' if n else title:<10}{text}"


def explained(logs: Logs) -> Explanation:
    """The explanation of the attempt with these logs. It queries the scheduler if necessary.

    An earlier attempt has no advice: another attempt followed it.
    """
    status, run, number = logs.status(), plain(logs.run.run_id), logs.attempt.number
    newest = number == logs.record.attempt
    events = ledger.events(logs.run.ledger)  # after the query, which may add the end
    if not status.state.over:
        return Explanation(run, number, status.state, plain(status.reason))
    end, failed = _end(logs, events, status), tuple(bad_ends(logs.attempt))
    error_of, error = ("", ()) if end.cause is Cause.DONE else _error(logs, _first(end, failed))
    advice, hosts = ADVICE[end.cause], tuple(map(plain, end.hosts))
    return Explanation(
        run,
        number,
        status.state,
        plain(status.reason),
        cause=end.cause.value,
        meaning=advice.meaning,
        hosts=hosts,
        ranks=end.ranks,
        step=end.step,
        evidence=end.evidence,
        failed=failed,
        error_of=error_of,
        error=tuple(map(plain, error)),
        to_do=(*_install([status.reason, *error]), *advice.lines(run, str(logs.run.folder), hosts)) if newest else (),
    )


def _install(texts: Iterable[str]) -> list[str]:
    """What to install if these texts say that Python lacks a module."""
    return list(dict.fromkeys(filter(None, map(how_to_install, texts))))[:1]


def _end(logs: Logs, events: Sequence[Event], status: Status) -> End:
    """The record of this end; without a record, the end as its status has it."""
    unrecorded = End(status.state, status.reason, cause=status.cause, hosts=status.hosts)
    return next((end for end in logs.ends(events) if end.cause is status.cause), unrecorded)


def _first(end: End, failed: Sequence[RankEnd]) -> int | None:
    """The rank whose error came first: a rank that the end names, else the first that failed and lost no connection."""
    own = [rank_end.rank for rank_end in failed if not rank_end.cut_off]
    return next((rank for rank in (*own, *end.ranks) if rank in end.ranks), own[0] if own else None)


def _error(logs: Logs, rank: int | None) -> tuple[str, Sequence[str]]:
    """(where the first error was written, its lines); ('', ()) if nothing was written.

    It is the last error of `rank`, else its last lines; without a rank, the error of the log that ended first, else the
    end of the job's output.
    """
    if rank is not None:
        lines = read_last(logs.attempt.rank_log(rank)).lines
        return (logs.named(rank), lines[-MOST_LINES:]) if lines else ("", ())
    known = [(written_s(path), origin, error) for origin, path in logs.files() if (error := read_last(path)).known]
    if known:
        _, origin, error = min(known, key=lambda log: log[0])
        return who(origin), error.lines[-MOST_LINES:]
    _, end = logs.end_of_job()
    return ("the job", end) if end else ("", ())
