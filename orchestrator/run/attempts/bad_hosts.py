"""The bad hosts of a run that keeps going: those that a job was given, and those that its later jobs leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.bad_nodes.left_out import LeftOutNodes, listed
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import RequestChanged, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request, without_bad_nodes
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.schedulers import client


def given(run: RunFolder, first: int, hosts: Sequence[str]) -> dict[str, str]:
    """The bad `hosts` of a job of the run, on which the job should begin nothing, with the reason for each.

    These are the hosts that are certainly bad, and those that a request would leave out now since it has enough others.
    A host that the submission of attempt `first` asked for, although it was known to be bad, is not among them.
    Raises SiteError if the plan of that attempt cannot be read.
    """
    planned = read_attempt(run, first)
    bad = [node for node in memory.bad(planned.plan.run.site) if _among(node.host, hosts)]
    bad = [node for node in bad if not _among(node.host, [*planned.left_out.keeps])]
    if not all(node.certain for node in bad):
        others = [*_now(planned).left_out.hosts]
        bad = [node for node in bad if node.certain or _among(node.host, others)]
    return {next(host for host in hosts if same_host(node.host, host)): node.why for node in bad}


def leave_out(run: RunFolder, first: int, jobs: Sequence[str], tasks: tuple[int, int] | None) -> None:
    """Have the scheduler leave out of waiting `jobs`, or `tasks` of an array, the hosts that a submission would now.

    Nothing is done without a new bad host since attempt `first` was submitted, or since the last time. Raises SiteError
    if the scheduler refuses.
    """
    planned, number = read_attempt(run, first), newest_of(run)
    events = ledger.events(run.ledger)
    known = last(events, RequestChanged, number) or last(events, Submitting, number)
    before = [*planned.exclude, *(known.left_out if known else ())]
    if all(_among(node.host, before) for node in memory.bad(planned.plan.run.site)):
        return
    now = _now(planned)
    if all(_among(host, before) for host in now.excluded):
        return
    asks, asked = client.of(planned.plan.site), request(now, run.attempt(first))
    if all([asks.leave_out(job, tasks, asked) for job in jobs]):
        print(f"torusrun: left out of later jobs: {listed(now.left_out.hosts)}", flush=True)
        ledger.append(run.ledger, RequestChanged(number, now.left_out.hosts))


def _now(planned: AttemptPlan) -> AttemptPlan:
    """The plan with what its request would leave out now."""
    return without_bad_nodes(replace(planned, left_out=LeftOutNodes()))


def _among(host: str, hosts: Sequence[str]) -> bool:
    return any(same_host(host, other) for other in hosts)
