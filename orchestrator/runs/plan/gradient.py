"""The size of the all-reduce of a plan, and its library."""

from __future__ import annotations

from orchestrator.base.errors import UserError
from orchestrator.network.cost.all_reduce import Backend
from orchestrator.network.placement.charge import Charge
from orchestrator.network.placement.choose import GRADIENT_BYTES
from orchestrator.network.prediction.workload import workload, workload_of
from orchestrator.runs.plan.plan import Plan
from orchestrator.spec.run import RunSpec


def gradient_of(run: RunSpec, named: str | None = None) -> tuple[float, str]:
    """(the bytes that one all-reduce sums, their description) of the workload `named`, else of the run.

    If the run's are unknown, those of ResNet-50. Raises UserError for an unknown name.
    """
    if named:
        return workload(named).gradient_bytes, f"the gradients of {named}"
    if not run.command:
        try:
            trained = workload_of(run.train)
        except UserError:
            pass
        else:
            return trained.gradient_bytes, f"the gradients of {trained.name}"
    return GRADIENT_BYTES, "the gradients of ResNet-50 in half precision, as the run's own size is not known"


def summed(run: RunSpec, named: str | None = None) -> str:
    """'51.1 MB (the gradients of ...)'."""
    size_bytes, whose = gradient_of(run, named)
    return f"{size_bytes / 1e6:.3g} MB ({whose})"


def charge_of(plan: Plan, named: str | None = None) -> Charge:
    """The all-reduce whose time an order of the plan's hosts is charged; of the workload `named`, else of the run."""
    size_bytes, _ = gradient_of(plan.run, named)
    return Charge(size_bytes, backend_of(plan), plan.run.train.sync)


def backend_of(plan: Plan) -> Backend:
    """The library that sums the gradients: NCCL between GPUs, gloo between CPUs."""
    return "nccl" if plan.site.node.gpus else "gloo"
