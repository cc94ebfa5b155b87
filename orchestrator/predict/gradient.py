"""The size of the all-reduce of a plan, and its library."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.placement.charge import Charge
from torusrun.orchestrator.place.placement.choose import GRADIENT_BYTES
from torusrun.orchestrator.predict.model.workload import workload_of
from torusrun.orchestrator.predict.rates import measured_facts
from torusrun.orchestrator.run.plan.plan import Plan


def gradient_of(plan: Plan) -> tuple[float, str]:
    """(the bytes that one all-reduce of the run sums, their description); if unknown, those of ResNet-50."""
    if not plan.run.command:
        try:
            trained = workload_of(plan.run.train, measured=measured_facts(plan.site))
        except UserError:
            pass
        else:
            return trained.gradient_bytes, f"the gradients of {trained.name}"
    return GRADIENT_BYTES, "the gradients of ResNet-50 in half precision, as the run's own size is not known"


def summed(plan: Plan) -> str:
    """'51.1 MB (the gradients of ...)'."""
    size_bytes, whose = gradient_of(plan)
    return f"{size_bytes / 1e6:.3g} MB ({whose})"


def charge_of(plan: Plan) -> Charge:
    """The run's all-reduce, by whose time orders of its hosts are compared."""
    return Charge(gradient_of(plan)[0], backend_of(plan), plan.run.train.sync)


def backend_of(plan: Plan) -> Backend:
    """The library that sums the gradients: NCCL between GPUs, gloo between CPUs."""
    return "nccl" if plan.site.node.gpus else "gloo"
