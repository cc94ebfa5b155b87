"""Checks whether the scheduler answers, and whether it has the site's queue, account, nodes and switches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.plan.job_request import of_site
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts, Queue
from torusrun.orchestrator.schedulers.topology import DESCRIBED, tree_of
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, warning
from torusrun.orchestrator.sites.propose import shown
from torusrun.training.counted import counted

ASKED_S = 60.0
NO_JOB = "999999999"  # an id that belongs to no job


def checks(site: Site) -> Iterator[Check]:
    """The checks of the scheduler, and of the site's values against its answers."""
    asked = client.of(site)
    if not asked.can_describe:
        yield _answers(asked)
        yield _request(site)
        return
    try:
        facts = asked.describe()
    except SiteError as error:
        mend = f"run the command yourself to see why; its module may not be loaded, or {site.scheduler} be down"
        yield failed("scheduler", str(error), mend)
        return
    yield ok("scheduler", f"{site.scheduler} answers: {facts.version or 'it does not say its version'}")
    for remark in facts.remarks:
        yield warning("scheduler", remark, "compare the keys below node: of the site with what the scheduler prints")
    if site.queue:
        yield _queue(site.queue, facts)
    if site.account and facts.accounts:
        yield _account(site.account, facts)
    elif facts.needs_account and not site.account:
        yield failed("account", "the scheduler refuses jobs without one", f"write account: {_words(facts.accounts)}")
    if not asked.scheduler.traits.one_machine:
        yield _request(site)
    yield from _nodes(site, facts)
    if site.topology and site.topology.source not in DESCRIBED:
        yield _topology(site)


def _answers(asked: client.Client) -> Check:
    """For a scheduler that cannot describe its cluster: whether it answers a query about a job."""
    (status,) = asked.poll([NO_JOB]).values()
    if status.state is State.UNKNOWN:
        return failed("scheduler", status.reason, "run the command yourself to see why")
    return ok("scheduler", f"{asked.scheduler.name} answers, and cannot be asked about its cluster")


def _queue(name: str, facts: ClusterFacts) -> Check:
    queues = {queue.name: queue for queue in facts.with_reserved}
    mend = f"write queue: {_words(tuple(queue.name for queue in facts.queues if not queue.closed))}"
    if name not in queues:
        return failed("queue", f"there is no queue {name!r}", mend)
    if queues[name].closed:
        return failed("queue", f"{name} takes no jobs: {queues[name].closed}", f"{mend}, or wait")
    if not queues[name].all_nodes:
        listed_by = facts.commands.get("nodes", "the scheduler")
        return warning("queue", f"{name}: {listed_by} shows no node of it", "run the command yourself to see why")
    return ok("queue", f"{name}: {shown(queues[name])}")


def _account(name: str, facts: ClusterFacts) -> Check:
    if name in facts.accounts:
        return ok("account", f"you may charge {name}")
    return warning("account", f"{name} is not listed", f"write account: {_words(facts.accounts)}")


def _request(site: Site) -> Check:
    """Whether the site has all values for a request for two nodes, or for this machine alone."""
    scheduler = schedulers.get(site.scheduler)
    nodes = 1 if scheduler.traits.one_machine else 2
    try:
        nowhere = Path("/dev/null")
        asked = of_site(site, nodes, site.node.ranks, name="doctor", time_s=ASKED_S, stdout=nowhere, stderr=nowhere)
        scheduler.directives(asked)
    except UserError as error:
        return failed("request", str(error), "correct ask, account or request of the site, as the message says")
    return ok("request", f"{'two nodes' if nodes == 2 else 'one node'} can be asked for")


def _nodes(site: Site, facts: ClusterFacts) -> Iterator[Check]:
    """The request of a run for a node, compared with the queue's largest nodes."""
    chosen = [queue for queue in facts.with_reserved if queue.name == (site.queue or queue.name)]
    kinds = [kind for queue in chosen for kind in queue.kinds]
    if not kinds:
        return
    gpus = max(kind.gpus for kind in kinds)
    cpus = max((kind.cpus or 0 for kind in kinds), default=0)
    memory = max((kind.memory_bytes or 0 for kind in kinds), default=0)
    asked, node = site.node.ranks * site.cpus_per_rank, site.node
    of_node = site.request.memory_of(node.ranks) or 0
    # The scheduler does not count CPUs on this machine, and an `ask` may count something else.
    counts = not schedulers.get(site.scheduler).traits.one_machine and not site.ask
    amounts = [
        (node.gpus, gpus, counted(node.gpus, "GPU")),
        (asked if cpus and counts else 0, cpus, counted(asked, "CPU")),
        (of_node if memory else 0, memory, f"{of_node} bytes"),
    ]
    if few := [f"{words}, and no node has more than {most}" for wanted, most, words in amounts if wanted > most]:
        mend = "lower node.ranks, node.gpus or request of the site, or name another queue"
        yield failed("nodes", f"a run asks of a node: {'; '.join(few)}", mend)
    else:
        yield ok("nodes", _has(site, chosen))


def _has(site: Site, queues: list[Queue]) -> str:
    count = max(queue.all_nodes for queue in queues)
    node = site.node
    gpus = f", and {counted(node.gpus, 'GPU')}" if node.gpus else ""
    ranks = f"{counted(node.ranks, 'rank')} of {counted(site.cpus_per_rank, 'CPU')}"
    return f"{counted(count, 'node')}; a run asks for {ranks}{gpus} on each"


def _topology(site: Site) -> Check:
    assert site.topology
    try:
        tree = tree_of(site.topology, (), site.command_timeout_s)
    except SiteError as error:
        return warning("topology", str(error), "remove topology of the site, or name a source that answers")
    hosts = sum(map(len, tree.leaves.values()))
    tree_words = f"{counted(hosts, 'host')} below {counted(len(tree.leaves), 'switch')}"
    return ok("topology", f"{site.topology.source}: {tree_words}")


def _words(names: tuple[str, ...]) -> str:
    return " or ".join(names[:8]) or "one that the scheduler has"
