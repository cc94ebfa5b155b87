"""Verbs of a run file through a login node: the file, its site and its code are sent, and the usual verb runs there.

A run's id is chosen here. So a repeated submission, after a lost answer, finds the run of the first one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torusrun.orchestrator.base.errors import TorusrunError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.terminal.remarks import is_quiet
from torusrun.orchestrator.keys.load import RunSource, load_site, site_file
from torusrun.orchestrator.remote import asking, remote_runs
from torusrun.orchestrator.remote.asking import Gone
from torusrun.orchestrator.remote.carried import carried, site_text
from torusrun.orchestrator.remote.links.host import Unanswered, of
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session
from torusrun.orchestrator.run.attempts.make_hold import held_plan
from torusrun.orchestrator.run.plan.plan import Plan, new_id
from torusrun.orchestrator.sweeps.plans import PlannedSweep, SweepOptions


def submit(
    planned: Plan,
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    held: str = "",
) -> Known:
    """Submit the plan of the run file at `path` through its site's login node, as `api.submit` does here.

    Raises UserError for a mistake in the files, SiteError for a refusal, NoAnswer if the result is unknown.
    """
    host = of(planned.site)
    how = {
        "after": [remote_runs.on(host, word) for word in after],
        "after_any": [remote_runs.on(host, word) for word in after_any],
        "held": remote_runs.held_on(host, held),
    }
    with carried(planned, path, site, settings) as (link, request):
        return _made(link, {**request, **how, "do": "submit"})


def submit_sweep(
    planned: PlannedSweep,
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    asked: SweepOptions,
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
) -> Known:
    """Submit a sweep through its site's login node, as `api.sweep` does here; the sweep. Raises as `submit` does."""
    host, members = of(planned.site), [member.run.run_id for member in planned.members]
    how = {
        "after": [remote_runs.on(host, word) for word in after],
        "after_any": [remote_runs.on(host, word) for word in after_any],
        "values": asked.values,
        "at_once": asked.at_once,
    }
    with carried(one_of(planned), path, site, settings) as (link, request):
        return _made(link, {**request, **how, "do": "sweep"}, members)


def one_of(planned: PlannedSweep) -> Plan:
    """The plan whose files are sent for a sweep. Raises UserError if its members have different code."""
    plan = planned.members[0].plan
    if any(member.plan.code != plan.code for member in planned.members):
        raise UserError(f"through {planned.site.host} all members of a sweep have the same code: leave 'code' out")
    return replace(plan, run_id=planned.folder.sweep_id)


def hold(
    planned: Plan,
    path: RunSource,
    time_s: float | None,
    idle_s: float,
    name: str | None,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> Known:
    """Hold an allocation through the login node, as `api.hold` does here. Raises as `submit` does."""
    run = held_plan(planned, time_s, name).run_id
    with carried(planned, path, site, settings, code=False) as (link, request):
        return _made(link, {**request, "do": "hold", "run": run, "time_s": time_s, "idle_s": idle_s, "name": name})


def again(known: Known) -> Known:
    """Submit a run of the login node again, as `report.handle.Run.reproduce` does here. Raises as `submit` does."""
    name = known.run.rsplit("-", 3)[0]
    with Session(known.host) as link:
        return _made(link, {"do": "reproduce", "run": new_id(name), "of": known.run, "site_name": known.site})


def run(
    verb: str,
    planned: Plan,
    path: RunSource,
    options: Sequence[str],
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> int:
    """Run `torusrun VERB FILE OPTIONS` on the login node; its exit code. The output names the files of this machine.

    Raises UserError and SiteError as the verb does.
    """
    with carried(planned, path, site, settings) as (link, request):
        return _printed(link, {**request, "do": "verb", "verb": verb, "options": options})


def of_site(verb: str, name: str, options: Sequence[str]) -> int:
    """Run `torusrun VERB --site SITE OPTIONS` on the login node of a site; as `run` does for a run file."""
    site, file = load_site(name), site_file(name)
    sent = f"site/{file.stem}.yaml"
    request = {"files": [(sent, site_text(site))], "names": [(sent, str(file))], "settings": [], "code": None}
    with Session(of(site)) as link:
        return _printed(link, {**request, "do": "verb", "verb": verb, "options": options})


def _printed(link: Session, request: dict[str, Any]) -> int:
    """Run a verb on the login node and print its output; its exit code."""
    quiet = ["--quiet"] if is_quiet() else []
    request = {**request, "options": [*request["options"], *quiet]}
    out, err, code = asking.answer(link, request, tuple[str, str, int], text=str)
    for stream, text in ((sys.stderr, err), (sys.stdout, out)):
        print(text, end="", file=stream, flush=True)
    return code


def _made(link: Session, request: dict[str, Any], members: Sequence[str] = ()) -> Known:
    """The run of the request, or the sweep with these `members`. It is recorded here before the request is sent."""
    run = Known(request["run"], link.host, request["site_name"], time.time())
    kept = members or [run.run]
    for name in kept:
        remote_runs.keep(replace(run, run=name))
    try:
        unsure = _ask(link, request)
    except KeyboardInterrupt:
        print(f"torusrun: `torusrun status {run.run}` shows whether it was submitted", file=sys.stderr)
        raise
    except Unanswered as error:
        raise NoAnswer(f"{error}; `torusrun status {run.run}` shows whether it was submitted") from None
    except TorusrunError:
        for name in kept:
            remote_runs.forget(name)
        raise
    if unsure:
        raise NoAnswer(f"{link.host.address}: {unsure}")
    return run


def _ask(link: Session, request: dict[str, Any]) -> str:
    """Submit the run; a second time if the login node was restarted in between.

    Returns why it is unknown whether the scheduler took the job; else ''.
    """
    try:
        return asking.answer(link, request, str, f"submit-{request['run']}")
    except Gone:
        return asking.answer(link, request, str, f"submit-{request['run']}-again")
