"""The state of runs on login nodes. All hosts are queried at once, each a single time, within a few seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from torusrun.orchestrator.base.defect import report
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.remote import remote_runs
from torusrun.orchestrator.remote.host import LoginHost
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.state.account import Account
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.view import View

SILENCE_S = 8.0  # several times the time of a login; the other runs wait for it
LONGEST_S = 20.0  # for the answer of a login node, for example with a slow scheduler

Say = Callable[[str], object]


@dataclass(frozen=True)
class Row:
    """What `torusrun status --json` has of a run beside its view."""

    account: Account | None = None
    starts_s: float | None = None


@dataclass
class Rows:
    """The views of runs, in their order, and what else was asked about them, by their ids."""

    views: list[View] = field(default_factory=list)
    accounts: dict[str, Account] = field(default_factory=dict)
    starts: dict[str, float] = field(default_factory=dict)


def rows(runs: Sequence[Known], *, named: bool = True, long: bool = False, say: Say = lambda text: None) -> Rows:
    """The current view of every run; UNKNOWN, with the last known state, if its host does not answer.

    A run that is over stays over. Unless `named`, a host is not queried if all of its runs are over. With `long`, also
    their accounts and expected starts. `say` gets a line for each host that did not answer.
    """
    by_host: dict[LoginHost, list[Known]] = defaultdict(list)
    for run in runs:
        by_host[run.host].append(run)
    asked = [host for host, of in by_host.items() if named or not all(run.over for run in of)]
    merged, seen = Rows(), dict[str, View]()
    with ThreadPoolExecutor(max(len(asked), 1)) as pool:
        answers = pool.map(lambda host: _asked(host, [run.run for run in by_host[host]], long), asked)
        for host, answer in zip(asked, answers, strict=True):
            if isinstance(answer, str):
                say(f"{answer}; its runs are shown in their last known states")
            for run in by_host[host]:
                if isinstance(answer, str):
                    seen[run.run] = unknown(run, answer)
                    continue
                view, row = answer.get(run.run, (None, Row()))
                seen[run.run] = taken(run, view)
                merged.accounts |= {run.run: row.account} if row.account else {}
                merged.starts |= {} if row.starts_s is None else {run.run: row.starts_s}
    merged.views = [seen.get(run.run) or unknown(run, "it was not asked") for run in runs]
    return merged


def views(runs: Sequence[Known]) -> list[View]:
    """The current view of every run, as in `rows`."""
    return rows(runs).views


def _asked(host: LoginHost, names: Sequence[str], long: bool) -> Mapping[str, tuple[View, Row]] | str:
    """A login node's views and rows of these runs, by their ids; or why it has no answer."""
    from torusrun.orchestrator.remote import call, program

    request = call.words("status", "--json", "--if-there", *(["--long"] if long else []), "--", *names)
    try:
        answer = call.answer(host, request, dict[str, Any], limits=program.WaitLimits(SILENCE_S, LONGEST_S, asks=False))
        listed = program.typed(host, tuple[dict[str, Any], ...], answer.get("runs"))
        pairs = [(program.typed(host, View, row), program.typed(host, Row, row)) for row in listed]
        return {view.run: (view, row) for view, row in pairs}
    except TorusrunError as error:
        return str(error)
    except Exception as error:
        return f"{host.address}: {report(error, ['status'])}"


def taken(run: Known, view: View | None) -> View:
    """The view of a run from its login node, which is recorded; `view` is None if the node lacks the run."""
    if view is None:
        why = "has no run of this name: it was removed, or its submission did not arrive"
        return unknown(run, f"{run.host.address} {why}; remove {remote_runs.file_of(run.run)} to forget it")
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
            run=run.run, state=State.UNKNOWN, reason=why, attempt=1, job=None, scheduler="", grid=None, ranks=None,
            hosts=(), step=None, total_steps=None, images_per_s=None, accuracy=None, folder=run.host.address,
            site=run.site,
        )  # fmt: skip
    before = view_of(run, run.last)
    if before.state.over:
        return before
    ago = short(max(time.time() - (run.last_s or run.submitted_s), 0.0))
    reason = f"{why}; {ago} ago it was {before.state.value}"
    return dataclasses.replace(before, state=State.UNKNOWN, reason=reason, pause="")
