"""Sends the notices of attempts that are due.

`orchestrator.upkeep.send_notices job MOMENTS RUN ATTEMPT` is for a job, which leaves a way that failed to the next
client, for the node may not reach it. `... client MOMENTS RUN ATTEMPT [RUN ATTEMPT...]` is for a user's command. It
tries each way once, and the ledger has the result. One process at a time sends for a run, and a POST that may have
arrived is not repeated, so that no notice is sent twice.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from torusrun.orchestrator.base import lock, process
from torusrun.orchestrator.base.environment import jobs_environment, which
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.shared import Notify
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Notified, Started
from torusrun.orchestrator.run.folder.kept_secrets import kept
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.plan.secret_values import WEBHOOK
from torusrun.orchestrator.upkeep.notices import WELL

SCHEMA = 1
LONGEST_S = 30  # then the kernel ends this process, whatever it waits for
TIME_S = 12.0  # for the lock and all ways: a job waits for 15 s, and what is not recorded by then is sent again
LEAST_S = 2.0  # of it for the ways
PROGRAM_S = 8.0
WEBHOOK_S = 8.0  # for its connection, and for its answer
TRIES = 2  # of a webhook
NO_ANSWER = "it did not answer in time"
MAYBE = "it did not answer in time, and may have the notice"  # a POST that is never repeated
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

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

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
        url, lacks = _url(run) if "webhook" in ways else ("", "")
        others = [way for way in ways if way != "webhook" or url]
        why = send(settings, others, url, replace(facts, moments=due), max(until_s - time.monotonic(), LEAST_S))
        failed = {way: reason for way in ways if (reason := why.get(way, lacks))}
        for way, reason in failed.items():
            print(f"torusrun: the notice by {way} failed: {reason}", file=sys.stderr)
        sent = tuple(way for way in ways if way not in failed)
        final = {way: reason for way, reason in failed.items() if by_client or reason == MAYBE}
        if sent or final:
            ledger.append(run.ledger, Notified(number, due, sent, final, tuple(failed.keys() - final.keys())))


def notice(run: RunFolder, number: int, moments: tuple[str, ...]) -> Notice:
    """The notice of an attempt, by the ledger. An end that nothing records is LOST."""
    events = ledger.events(run.ledger)
    began, end = ledger.last(events, Started, number), ledger.last(events, Ended, number)
    facts = Notice(
        run.run_id, str(run.folder), number, moments, State.RUNNING.value, hosts=began.hosts if began else ()
    )
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


def _url(run: RunFolder) -> tuple[str, str]:
    """The URL of the webhook, or '' and why it is not known: its user may have removed the file."""
    try:
        return kept(run, [WEBHOOK])[WEBHOOK], ""
    except SiteError as error:
        return "", str(error)


def _done(run: RunFolder, number: int) -> set[tuple[str, str]]:
    """The notices of an attempt that are not to be sent any more: (moment, way)."""
    events = [e for e in ledger.events(run.ledger) if isinstance(e, Notified) and e.attempt == number]
    return {(moment, way) for event in events for moment in event.moments for way in (*event.ways, *event.failed)}


def send(settings: Notify, ways: Collection[str], url: str, facts: Notice, longest_s: float) -> dict[str, str]:
    """Send the notice by all ways at once; the ways with why each failed, '' if it did not.

    A way without an answer in time has failed; it delays no other.
    """
    program_s = min(PROGRAM_S, 0.8 * longest_s)  # it is ended before its way is given up
    posted = threading.Event()
    work = {
        "command": lambda: _program([*settings.command], facts, None, program_s),
        "webhook": lambda: _webhook(url, facts, posted),
        "mail": lambda: _mail(str(settings.mail), facts, program_s),
    }
    why: dict[str, str] = {}
    # Not those of a pool, for which a process waits at its end: the resolver and a slow webhook know no limit.
    threads = [threading.Thread(target=lambda way: why.update({way: work[way]()}), args=[w], daemon=True) for w in ways]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + longest_s
    for thread in threads:
        thread.join(max(until_s - time.monotonic(), 0.0))
    return {way: why.get(way, MAYBE if way == "webhook" and posted.is_set() else NO_ANSWER) for way in ways}


def _mail(address: str, facts: Notice, longest_s: float) -> str:
    rows = "".join(f"{key}: {value}\n" for key, value in facts.as_json().items())
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


def _webhook(url: str, facts: Notice, posted: threading.Event) -> str:
    """POST the notice, a second time unless the webhook has or may have it. The reason does not contain the URL."""
    why = ""
    for _ in range(TRIES):
        if (why := _post(url, facts, posted)) in ("", MAYBE):
            break
    return why


def _post(url: str, facts: Notice, posted: threading.Event) -> str:
    """POST the notice once. `posted` is set while the webhook may have it and has not answered."""
    content = json.dumps(facts.as_json()).encode()

    def body() -> Iterator[bytes]:
        posted.set()
        yield content

    headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), "User-Agent": "torusrun"}
    try:
        asked = urllib.request.Request(url, body(), headers)
        with urllib.request.build_opener(_Nowhere).open(asked, timeout=WEBHOOK_S):
            return ""
    except urllib.error.HTTPError as error:
        posted.clear()
        return f"the webhook answered {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        if posted.is_set():
            return MAYBE
        reason = getattr(error, "reason", error)
        return f"the webhook was not reached: {getattr(reason, 'strerror', None) or type(reason).__name__}"


class _Nowhere(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the answer is an error."""

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


if __name__ == "__main__":
    main()
