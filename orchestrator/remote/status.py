"""The state of runs on login nodes. All hosts are queried at once, each one time, within a few seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from torusrun.orchestrator.base.defect import report
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.remote import remote_runs
from torusrun.orchestrator.remote.links.host import LoginHost
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.view import View

SILENCE_S = 5.0  # several times the time of a login; the other runs wait for it
LONGEST_S = 20.0  # for a login node that shows signs of life, for example with a slow scheduler

Say = Callable[[str], object]


def views(runs: Sequence[Known], *, named: bool = True, say: Say = lambda text: None) -> list[View]:
    """The current view of every run; UNKNOWN, with the last known state, if its host does not answer.

    A run that is over stays over. Unless `named`, a host is not queried if all of its runs are over. `say` gets a line
    for each host that did not answer.
    """
    by_host: dict[LoginHost, list[Known]] = defaultdict(list)
    for run in runs:
        by_host[run.host].append(run)
    asked = [_Asked(host, of) for host, of in by_host.items() if named or not all(run.over for run in of)]
    found = {name: view for one in asked for name, view in one.views(say).items()}
    return [found.get(run.run) or unknown(run, "it was not asked") for run in runs]


class _Asked:
    """A running query of a login node."""

    def __init__(self, host: LoginHost, runs: list[Known]) -> None:
        self._host, self._runs = host, runs
        self._found: dict[str, View | None] = {}
        self._error: Exception | None = None
        self._silent_s, self._until_s = float("inf"), time.monotonic() + LONGEST_S
        self._ended = threading.Event()
        # A daemon: a link that does not connect is abandoned, and keeps no program from ending.
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        from torusrun.orchestrator.remote import asking
        from torusrun.orchestrator.remote.session import Session

        try:
            with Session(self._host, 0, asks=False, heard=self._heard) as link:
                request = {"do": "views", "runs": [run.run for run in self._runs]}
                self._found = asking.answer(link, request, dict[str, View | None], within_s=LONGEST_S)
        except Exception as error:
            self._error = error
        self._ended.set()

    def _heard(self, more_s: float) -> None:
        """Record a sign of life. The host may need `more_s` more seconds."""
        self._silent_s = time.monotonic() + SILENCE_S + more_s
        self._until_s += more_s

    def views(self, say: Say) -> dict[str, View]:
        """The views by the ids of the runs."""
        while not self._ended.wait(max(min(self._silent_s, self._until_s) - time.monotonic(), 0.0)):
            for until_s, allowed_s in ((self._silent_s, SILENCE_S), (self._until_s, LONGEST_S)):
                if time.monotonic() > until_s:
                    return self._unknown(f"{self._host.address}: no answer within {allowed_s:g} s", say)
        if isinstance(self._error, TorusrunError):
            return self._unknown(str(self._error), say)
        if self._error:
            return self._unknown(f"{self._host.address}: {report(self._error, ['status'])}", say)
        return {run.run: taken(run, self._found.get(run.run)) for run in self._runs}

    def _unknown(self, why: str, say: Say) -> dict[str, View]:
        say(f"{why}; its runs are shown in their last known states")
        return {run.run: unknown(run, why) for run in self._runs}


def taken(run: Known, view: View | None, *, keep: bool = True) -> View:
    """The view of a run from its login node, None if that lacks the run. With `keep` it is recorded."""
    if view is None:
        why = "has no run of this name: it was removed, or its submission did not arrive"
        return unknown(run, f"{run.host.address} {why}; remove {remote_runs.file_of(run.run)} to forget it")
    if keep:
        with contextlib.suppress(SiteError):  # a full disk must not hide a run
            remote_runs.seen(run, view)
    return view_of(run, view)


def view_of(run: Known, view: View) -> View:
    """A view from a login node with the facts that are known here; its folder is on the host."""
    return dataclasses.replace(view, run=run.run, folder=f"{run.host.address}:{view.folder}", site=run.site)


def unknown(run: Known, why: str) -> View:
    """The view of a run whose state is unknown now, from its last known view."""
    if run.last is None:
        return View(
            run.run, State.UNKNOWN, why, 1, None, "", None, None, (), None, None, None, None, run.host.address,
            site=run.site,
        )  # fmt: skip
    before = view_of(run, run.last)
    if before.state.over:
        return before
    ago = short(max(time.time() - (run.last_s or run.submitted_s), 0.0))
    return dataclasses.replace(
        before, state=State.UNKNOWN, reason=f"{why}; {ago} ago it was {before.state.value}", pause=""
    )
