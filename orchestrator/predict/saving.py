"""What a save of a plan's training costs: as measured at its site, or as predicted from the size of its state."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.predict.model.checkpoints import Saving, in_memory, mean_time_to_failure_s, predicted_s
from torusrun.orchestrator.predict.model.workload import Workload, workload_of
from torusrun.orchestrator.predict.rates import measured_facts
from torusrun.orchestrator.run.plan.plan import Plan


def failure_s(plan: Plan) -> float:
    """The mean time between failures of a plan's job."""
    return mean_time_to_failure_s(plan.site.node.mean_time_to_failure_s, plan.run.nodes, plan.ranks)


def saving(plan: Plan, trained: Workload) -> Saving:
    """The cost of a save of the network `trained`."""
    measured_us = plan.site.save_us.get(trained.name)
    parameters = sum(layer.parameters for layer in trained.layers)
    save_s = measured_us / 1e6 if measured_us else predicted_s(parameters)
    every_steps, copies = plan.run.train.checkpoint_every_steps, plan.run.train.checkpoints.memory
    kept = in_memory(parameters, plan.ranks_per_node) if copies else None
    return Saving(save_s, measured_us is not None, every_steps, failure_s(plan), kept)


def saving_of(plan: Plan) -> Saving | None:
    """The cost of a save of the plan's own network; None for a command or an own network without a measurement."""
    if plan.run.command:
        return None
    try:
        return saving(plan, workload_of(plan.run.train, measured=measured_facts(plan.site)))
    except UserError:
        return None
