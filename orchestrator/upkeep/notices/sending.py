"""Sends the notices of attempts that are due.

`orchestrator.upkeep.notices.sending job MOMENTS RUN ATTEMPT` is for a job, which leaves a way that failed to the next
client, for the node may not reach it. `... client MOMENTS RUN ATTEMPT [RUN ATTEMPT...]` is for a user's command. It
tries each way once, and the ledger has the result. One process at a time sends for a run, and a POST that may have
arrived is not repeated, so that no notice is sent twice.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base import lock
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Notified
from torusrun.orchestrator.run.folder.kept_secrets import kept
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.plan.secret_values import WEBHOOK
from torusrun.orchestrator.upkeep.notices.notice import notice
from torusrun.orchestrator.upkeep.notices.send import MAYBE, send

LONGEST_S = 30  # then the kernel ends this process, whatever it waits for
TIME_S = 12.0  # for the lock and all ways: a job waits for 15 s, and what is not recorded by then is sent again
LEAST_S = 2.0  # of it for the ways


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
    plan = read_plan(run, number)
    settings, until_s = plan.notify, time.monotonic() + TIME_S
    with lock.held(run.notices_lock, wait_s=TIME_S - LEAST_S) as mine:
        if mine is False:
            return
        said = notice(run, number, moments)
        asked = [moment for moment in said.moments if moment in settings.at]
        done = _done(run, number)
        due = tuple(moment for moment in asked if any((moment, way) not in done for way in settings.ways))
        ways = [way for way in settings.ways if any((moment, way) not in done for moment in due)]
        if not ways:
            return
        url, lacks = _url(run) if "webhook" in ways else ("", "")
        others = [way for way in ways if way != "webhook" or url]
        why = send(settings, others, url, replace(said, moments=due), max(until_s - time.monotonic(), LEAST_S))
        why = {way: why.get(way, lacks) for way in ways}
        failed = {way: reason for way, reason in why.items() if reason}
        for way, reason in failed.items():
            print(f"torusrun: the notice by {way} failed: {reason}", file=sys.stderr)
        sent = tuple(way for way in ways if way not in failed)
        final = {way: reason for way, reason in failed.items() if by_client or reason == MAYBE}
        if sent or final:
            ledger.append(run.ledger, Notified(number, due, sent, final, tuple(failed.keys() - final.keys())))


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


if __name__ == "__main__":
    main()
