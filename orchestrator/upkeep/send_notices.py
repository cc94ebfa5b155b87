"""Sends the notices of attempts that are due.

`orchestrator.upkeep.send_notices job MOMENTS RUN ATTEMPT` is for a job, which leaves a way that failed to the next
client, for the node may not reach it. `... client MOMENTS RUN ATTEMPT [RUN ATTEMPT...]` is for a user's command. It
tries each way once, and the ledger has the result. One process at a time sends for a run, so that no notice is sent
twice.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base import lock, process
from torusrun.orchestrator.base.environment import jobs_environment, which
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.shared import Notify
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Notified, Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.upkeep.notices import WELL

LONGEST_S = 30  # then the kernel ends this process, whatever it waits for
TIME_S = 12.0  # for the lock and all ways: a job waits for 15 s, and what is not recorded by then is sent again
LEAST_S = 2.0  # of it for the ways
PROGRAM_S = 8.0
SENDMAIL = "/usr/sbin/sendmail"


@dataclass(frozen=True)
class Notice:
    """The facts of attempt `attempt` of a run at these `moments`."""

    run: str
    folder: str
    attempt: int
    moments: tuple[str, ...]
    state: str
    cause: str = ""
    reason: str = ""
    step: int | None = None
    hosts: tuple[str, ...] = ()

    def as_variables(self) -> dict[str, str]:
        """The variables of a command. No text of the run is part of a command line."""
        values = {**asdict(self), "moments": " ".join(self.moments), "hosts": " ".join(self.hosts)}
        named = {f"TORUSRUN_{key.upper()}": "" if value is None else str(value) for key, value in values.items()}
        return {name: value.replace("\0", "") for name, value in named.items()}


def main() -> None:
    who, moments, *attempts = sys.argv[1:]
    os.umask(0o077)
    wrong = ""
    for folder, number in zip(attempts[::2], attempts[1::2], strict=True):
        signal.alarm(LONGEST_S)
        try:
            send_due(RunFolder(Path(folder)), int(number), tuple(moments.split(",")), by_client=who == "client")
        except TorusrunError as error:
            wrong = f"torusrun: the notices of {Path(folder).name} are not sent: {error}"
    sys.exit(wrong or 0)


def send_due(run: RunFolder, number: int, moments: tuple[str, ...], *, by_client: bool) -> None:
    """Send what is due. Raises SiteError if the run cannot be read or the ledger cannot be written."""
    settings, until_s = read_plan(run, number).notify, time.monotonic() + TIME_S
    with lock.held(run.notices_lock, wait_s=TIME_S - LEAST_S) as mine:
        if mine is False:
            return
        facts, done = notice(run, number, moments), _done(run, number)
        asked = [moment for moment in facts.moments if moment in settings.at]
        due = tuple(moment for moment in asked if any((moment, way) not in done for way in settings.ways))
        ways = [way for way in settings.ways if any((moment, way) not in done for moment in due)]
        if not ways:
            return
        why = send(settings, ways, replace(facts, moments=due), max(until_s - time.monotonic(), LEAST_S))
        failed = {way: reason for way, reason in why.items() if reason}
        for way, reason in failed.items():
            print(f"torusrun: the notice by {way} failed: {reason}", file=sys.stderr)
        sent = tuple(way for way in ways if way not in failed)
        if sent or by_client:
            final, left = (failed, ()) if by_client else ({}, tuple(failed))
            ledger.append(run.ledger, Notified(number, due, sent, final, left))


def notice(run: RunFolder, number: int, moments: tuple[str, ...]) -> Notice:
    """The notice of an attempt, by the ledger. An end that nothing records is LOST."""
    events = ledger.events(run.ledger)
    began, end = ledger.last(events, Started, number), ledger.last(events, Ended, number)
    hosts = began.hosts if began else ()
    facts = Notice(run.run_id, str(run.folder), number, moments, State.RUNNING.value, hosts=hosts)
    if moments == ("start",):
        return facts
    state, cause = (end.state, end.cause.value) if end else (State.LOST, "")
    reason = end.reason if end else "it ended without a record"
    closed = ledger.last(events, KeptGoing, number)
    if closed and state is not State.COMPLETED:
        reason = f"{reason}; no further attempt: {closed.why}"
    happened = (*moments, *(["failure"] if state not in WELL and "end" in moments else []))
    step = end.step if end else None
    return replace(facts, moments=happened, state=state.value, cause=cause, reason=reason, step=step)


def _done(run: RunFolder, number: int) -> set[tuple[str, str]]:
    """The notices of an attempt that are not to be sent any more: (moment, way)."""
    events = [e for e in ledger.events(run.ledger) if isinstance(e, Notified) and e.attempt == number]
    return {(moment, way) for event in events for moment in event.moments for way in (*event.ways, *event.failed)}


def send(settings: Notify, ways: Sequence[str], facts: Notice, longest_s: float) -> dict[str, str]:
    """Send the notice by all ways at once; the ways with why each failed, '' if it did not."""
    program_s = min(PROGRAM_S, 0.8 * longest_s)
    work = {
        "command": lambda: _program([*settings.command], facts, None, program_s),
        "mail": lambda: _mail(str(settings.mail), facts, program_s),
    }
    with ThreadPoolExecutor() as pool:
        return dict(zip(ways, pool.map(lambda way: work[way](), ways), strict=True))


def _mail(address: str, facts: Notice, longest_s: float) -> str:
    rows = "".join(f"{key}: {value}\n" for key, value in asdict(facts).items())
    subject = f"torusrun: {facts.run} is {facts.state}"
    text = f"To: {address}\nSubject: {subject}\nContent-Type: text/plain; charset=utf-8\n\n{rows}"
    return _program([which("sendmail") or SENDMAIL, "-i", address], facts, text, longest_s)


def _program(words: list[str], facts: Notice, text: str | None, longest_s: float) -> str:
    environment = {**jobs_environment(), **facts.as_variables()}
    try:
        done = process.run(words, timeout_s=longest_s, environment=environment, text=text)
    except SiteError as error:
        return str(error).partition(process.WAS_RUNNING)[0]
    return f"{words[0]} ended with exit code {done.exit_code}" if done.exit_code else ""


if __name__ == "__main__":
    main()
