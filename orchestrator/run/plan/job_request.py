"""The request of an attempt's job to its scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.shared import secret
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.bad_nodes.left_out import choose
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.fits import names_account
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.words import filled


def request(
    planned: AttemptPlan, attempt: Attempt, after: Sequence[str] = (), after_any: Sequence[str] = ()
) -> Request:
    """The request of the job of an attempt in the folder `attempt`.

    The job begins once the jobs `after` ended well and the jobs `after_any` ended. Its name is the run's id, in the
    queue with the attempt's number: unique, so that a later client recognizes it. A run that keeps going gets an array
    of jobs that run one at a time, or the first of jobs that are submitted in turn.
    """
    plan = planned.plan
    several = plan.jobs > 1 and schedulers.get(plan.site.scheduler).traits.has_arrays and not plan.jobs_in_turn
    return of_site(
        plan.site,
        plan.asked_nodes,
        plan.most_ranks_on_a_node,
        plan.run.account,
        name=plan.run_id,
        token=f"{plan.run_id}.{planned.number}",
        time_s=plan.run.time_s,
        queue=plan.run.queue or plan.site.queue,
        stdout=attempt.jobs_stdout if plan.keeps_going else attempt.stdout,
        stderr=attempt.jobs_stderr if plan.keeps_going else attempt.stderr,
        after=tuple(after),
        after_any=tuple(after_any),
        exclude=planned.excluded,
        array=plan.jobs if several else 0,
        parallel=1 if several else 0,
        lives_on=plan.outlives_hosts,
        secrets=tuple(plan.secrets),
    )


def of_site(site: Site, nodes: int, ranks_per_node: int, account: str | None = None, **own: Any) -> Request:
    """The request for whole nodes of a site, in its words.

    `own` are further fields, and the queue and the secrets if they are others than the site's.
    Raises UserError if the words contain {account}, and neither run nor site has an account.
    """
    account = account or site.account
    if names_account(site) and not account:
        raise UserError("the site names {account} in what it asks its scheduler for: write 'account' into its file")
    numbers: dict[str, Any] = {
        "nodes": nodes,
        "ranks_per_node": ranks_per_node,
        "cpus_per_rank": site.cpus_per_rank,
        "gpus": site.gpus,
        "account": account,
    }
    asked = site.request
    return Request(
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        cpus_per_rank=site.cpus_per_rank,
        gpus_per_node=site.gpus,
        gpu_type=site.gpu_type,
        memory_bytes=asked.memory_of(ranks_per_node),
        qos=asked.qos,
        constraint=asked.constraint,
        reservation=asked.reservation,
        exclusive=asked.exclusive,
        licenses=asked.licenses,
        account=None if names_account(site) else account,
        ask=filled(site.ask, **numbers),
        extra=asked.options,
        submit_args=filled(site.submit_args, **numbers),
        **{"queue": site.queue, "secrets": tuple(secret(site.env)), **own},
    )


def without_bad_nodes(planned: AttemptPlan) -> AttemptPlan:
    """The plan with the hosts that its request leaves out. The scheduler is queried only if any host is bad."""
    return all_without_bad_nodes([planned])[0]


def all_without_bad_nodes(planned: Sequence[AttemptPlan]) -> list[AttemptPlan]:
    """As `without_bad_nodes`, for attempts at one site, with one query for each queue."""
    if not planned or not (bad := memory.bad(planned[0].plan.run.site)):
        return list(planned)
    site = planned[0].plan.site
    cannot = schedulers.get(site.scheduler).traits.cannot_exclude
    hosts = cache(client.of(site).hosts)
    plans = []
    for attempt in planned:
        run = attempt.plan.run
        cluster = () if cannot else hosts(run.queue or site.queue)
        chosen = choose(bad, attempt.plan.asked_nodes, excluded=attempt.exclude, cluster=cluster, cannot=cannot)
        plans.append(replace(attempt, left_out=chosen))
    return plans
