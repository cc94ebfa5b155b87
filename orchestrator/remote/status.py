"""The state of runs on login nodes: each host is asked once, all at the same time."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from orchestrator.errors import TorusrunError
from orchestrator.remote import known
from orchestrator.remote.known import Known
from orchestrator.remote.links.host import LoginHost
from orchestrator.states import State
from orchestrator.watch.pace import short
from orchestrator.watch.view import View

FIELDS = {field.name for field in dataclasses.fields(View)}


def views(runs: Sequence[Known], *, named: bool = True) -> list[View]:
    """Every run as it stands; UNKNOWN, with what was known last, where its host does not answer.

    A run that is over stays so. Unless runs were named, a host is not asked if all of its runs are over.
    """
    if not runs:
        return []
    by_host: dict[LoginHost, list[Known]] = defaultdict(list)
    for run in runs:
        by_host[run.host].append(run)
    asked = [group for group in by_host.items() if named or not all(run.over for run in group[1])]
    with ThreadPoolExecutor(len(by_host)) as pool:
        found = dict(pair for pairs in pool.map(_asked, asked) for pair in pairs)
    return [found.get(run.run) or view_of(run, run.last or {}) for run in runs]


def _asked(group: tuple[LoginHost, list[Known]]) -> list[tuple[str, View]]:
    from orchestrator.remote import asking
    from orchestrator.remote.session import Lasting

    host, runs = group
    try:
        with Lasting(host, patience_s=0) as link:
            said = asking.answer(link, {"do": "views", "runs": [run.run for run in runs]})["runs"]
    except TorusrunError as error:
        return [(run.run, _unknown(run, str(error))) for run in runs]
    return [(run.run, _told(run, said[run.run])) for run in runs]


def _told(run: Known, said: dict[str, Any] | None) -> View:
    if said is None:
        return missing(run)
    known.seen(run, said)
    return view_of(run, said)


def missing(run: Known) -> View:
    """A run that the login node does not have."""
    why = "has no run of this name: it was removed, or its submission did not arrive"
    return _unknown(run, f"{run.host.address} {why}; remove {known.file_of(run.run)} to forget it")


def view_of(run: Known, said: dict[str, Any]) -> View:
    """A view out of its JSON; its folder is on the host."""
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in said.items() if key in FIELDS
    }
    folder = f"{run.host.address}:{said['folder']}"
    return View(**{**values, "state": State(said["state"]), "folder": folder, "site": run.site})


def _unknown(run: Known, why: str) -> View:
    """A run that nobody can tell of now, with what was known last."""
    if run.last is None:
        return View(
            run.run,
            State.UNKNOWN,
            why,
            1,
            None,
            "",
            None,
            None,
            (),
            None,
            None,
            None,
            None,
            run.host.address,
            site=run.site,
        )
    before = view_of(run, run.last)
    if before.state.over:
        return before
    ago = short(time.time() - (run.last_s or run.submitted_s))
    return dataclasses.replace(
        before, state=State.UNKNOWN, reason=f"{why}; {ago} ago it was {before.state.value}", pause=""
    )
