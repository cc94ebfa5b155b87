"""The input of a prediction, from a plan: its ranks, grid and batch, the site's links, and its device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import TorusrunError, UserError
from torusrun.orchestrator.forecast.constants import network, table, with_ranks_per_node
from torusrun.orchestrator.forecast.forecast import Forecast, forecast
from torusrun.orchestrator.forecast.step import InputTime, norms_s
from torusrun.orchestrator.forecast.workload import Asked, Communication, PhaseSteps, Workload, workload, workload_of
from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.algorithms import Layout, cost_of
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.cost.regular import Level, Network
from torusrun.orchestrator.place.placement.arrange import Charge
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.orchestrator.run.folder.shown_plan import KeptForecast
from torusrun.orchestrator.run.plan.all_reduces import spans_of
from torusrun.orchestrator.run.plan.auto_grid import best_grids, placed
from torusrun.orchestrator.run.plan.command_runs import NOTHING
from torusrun.orchestrator.run.plan.plan import ChosenGrid, Plan
from torusrun.orchestrator.run.plan.rates import (
    Otherwise,
    backend_of,
    device_of,
    measured_facts,
    saving,
    train_of,
)
from torusrun.orchestrator.schedulers import topology
from torusrun.orchestrator.schedulers.topology import ExpectedHosts, expected, on_one_switch
from torusrun.training.counted import counted
from torusrun.training.recipe.train import Train
from torusrun.training.schedule import Course

PLACED = "hosts as placed"


def forecast_of(plan: Plan, hosts: ExpectedHosts | None = None, otherwise: Otherwise | None = None) -> Forecast:
    """The forecast of `plan` on `hosts`, by default on those that the site will probably allocate.

    Without a grid the plan gets the best grid on these hosts. Raises UserError if no rate is known.
    """
    if plan.run.command:
        raise UserError(NOTHING)
    other = otherwise or Otherwise()
    trained = _trained(plan, other)
    backend: Backend = "nccl" if other.gpu else backend_of(plan)
    named = with_ranks_per_node(network(other.network), plan.ranks_per_node) if other.network else None
    if named:
        plan, communication = _on_network(plan, named, trained, backend)
    else:
        plan, communication = _on_hosts(plan, hosts or expected(plan.site, plan.run.nodes), trained, backend)
    return forecast(
        Asked(
            nodes=plan.asked_nodes,
            ranks=plan.ranks,
            grid=plan.grid.dims,
            phases=_phases(plan.run.train, trained),
            epochs=plan.run.train.epochs,
            evaluations=Course(plan.run.train, trained.images).evaluations,
            workload=trained,
            device=device_of(plan, trained, other),
            network=named or _links(plan),
            communication=replace(communication, placed=communication.placed + _beyond(plan, other)),
            saving=saving(plan, trained),
            links_error=None if other.network else plan.site.measured.links_error,
            recipe=plan.run.train.recipe,
            reading=None if other.workload else _reading(plan),
            points_per_node_hour=plan.site.points_per_node_hour,
            ranks_per_core=_ranks_per_core(plan, other),
        )
    )


def _trained(plan: Plan, other: Otherwise) -> Workload:
    train, gpus = train_of(plan, other), other.gpu is not None or plan.site.gpus > 0
    if other.workload:
        return workload(other.workload, train.sync, gpus)
    return workload_of(train, gpus, measured_facts(plan.site))


def _phases(train: Train, trained: Workload) -> tuple[PhaseSteps, ...]:
    """The steps of each phase that has steps, with images of its size; a run without phases has a single phase."""
    phases = [(phase, steps) for phase, steps in Course(train, trained.images).steps_to_come() if steps]
    return tuple(PhaseSteps(phase.batch, steps, _work(phase.view.size, trained)) for phase, steps in phases)


def _work(size: int | None, trained: Workload) -> float:
    """The work of an image of this size, relative to an image of the workload."""
    return 1.0 if size is None or trained.side is None else (size / trained.side) ** 2


def _on_network(plan: Plan, links: Network, trained: Workload, backend: Backend) -> tuple[Plan, Communication]:
    """The plan with its grid, and its communication on a regular network, with the ranks in node order."""
    used = links.holding(plan.ranks)
    sync, layout = plan.run.train.sync, regular.RegularLayout(used, backend)
    best = regular.best(used, trained.gradient_bytes, backend, sync).dims if plan.run.nodes > 1 else (plan.ranks,)
    plan = _with(plan, best)
    best_s = cost_of(sync, layout, best)(trained.gradient_bytes)
    all_reduce_s = cost_of(sync, layout, plan.grid.dims)
    return plan, Communication(all_reduce_s, best, best_s, "ranks in node order", _norms_s(layout, trained, plan))


def _on_hosts(plan: Plan, hosts: ExpectedHosts, trained: Workload, backend: Backend) -> tuple[Plan, Communication]:
    """The plan with its grid, and its communication on these hosts."""
    charge = Charge(trained.gradient_bytes, backend, plan.run.train.sync)
    grids = best_grids(plan, hosts, charge)
    best = grids[0]
    plan = _with(plan, best.dims)
    order = placed(plan, hosts, grids, charge).hosts
    layout = HostsLayout(hosts.cluster, order, plan.ranks_per_node, backend)
    spans = spans_of(plan) if backend == backend_of(plan) else ()  # measured with the site's own library
    all_reduce_s = cost_of(plan.run.train.sync, layout, plan.grid.dims, spans)
    return plan, Communication(all_reduce_s, best.dims, best.total_s, hosts.assumed, _norms_s(layout, trained, plan))


def _with(plan: Plan, best: tuple[int, ...]) -> Plan:
    """The plan with its grid, which is `best` if the run leaves the choice to the job."""
    return plan if plan.has_grid else replace(plan, chosen=ChosenGrid(Grid(best), "auto"))


def _beyond(plan: Plan, other: Otherwise) -> str:
    """That the run takes more nodes than the shipped network of this name has; '' if not, or for another name."""
    name = other.network or plan.run.site
    known = network(name) if name in table("networks") else None
    if known is None or plan.ranks <= known.ranks:
        return ""
    nodes = counted(known.ranks // known.levels[0].members, "node")
    return f"; {name} has {nodes}: the others are assumed to have the same links"


def _norms_s(layout: Layout, trained: Workload, plan: Plan) -> float:
    """The seconds that the batch norms communicate in a step, in groups of consecutive ranks."""
    if not trained.norms:
        return 0.0
    group = layout.first(trained.norm_ranks)
    return plan.run.train.accumulate * norms_s(trained.norms, group.torus((group.ranks,)))


def _links(plan: Plan) -> Network:
    """The links by the site's file, or as measured at the site."""
    node, ranks = plan.site.node, plan.ranks_per_node
    intra_node = Level("node", ranks, node.intra_node_bytes_per_s, node.intra_node_latency_us / 1e6)
    if plan.run.nodes == 1:
        return Network((intra_node,))
    network_s = node.inter_node_latency_us / 1e6
    return Network((intra_node, Level("cluster", plan.run.nodes, node.inter_node_bytes_per_s, network_s, ranks)))


def _reading(plan: Plan) -> InputTime | None:
    """The input as `torusrun calibrate` measured it for the run's data set."""
    times = plan.site.measured.data.get(plan.run.train.data.name)
    if not times or not times.decode_us:
        return None
    return InputTime(times.decode_us / 1e6, (times.decode_us + times.read_us) / 1e6)


def _ranks_per_core(plan: Plan, other: Otherwise) -> float:
    """How many ranks share a core: on this machine alone, because other schedulers give each rank its own."""
    if other.gpu or plan.site.gpus or not schedulers.get(plan.site.scheduler).traits.one_machine:
        return 1.0
    return max(1.0, plan.ranks / len(os.sched_getaffinity(0)))


def named_hosts(plan: Plan, names: Sequence[str]) -> ExpectedHosts:
    """The hosts of these names, of which the run may use a part; without a topology on one switch.

    Queries the topology's source once. Raises UserError for too few hosts.
    """
    names = tuple(dict.fromkeys(names))
    if len(names) < plan.run.nodes:
        raise UserError(f"the run takes {counted(plan.run.nodes, 'node')}; --hosts has {len(names)}")
    known = topology.cluster(plan.site, names)
    if known:
        return ExpectedHosts(names, known, PLACED)
    return on_one_switch(plan.site, names, "the site has no topology")


def forecast_at_submit(plan: Plan) -> KeptForecast | None:
    """The forecast of a training on the hosts that the site will probably allocate; None if nothing is known."""
    if plan.run.program != "train":
        return None
    try:
        whole = forecast_of(plan)
    except TorusrunError:  # no rate is known, or the topology is not: the submission does not need it
        return None
    return KeptForecast(
        whole.total_s,
        whole.validation_s,
        whole.steps,
        whole.images_per_s,
        whole.grid,
        whole.assumptions,
        bounds_s=whole.intervals["total_s"],
    )
