"""The device, the all-reduce and the saves of a plan: as measured at its site, as the user names them, or published."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.forecast.checkpoints import Saving, in_memory, predicted_s
from torusrun.orchestrator.forecast.device import (
    PASSES,
    Device,
    device_for,
    device_with,
    factors,
    images_per_s,
    measured,
    of_architecture,
    reference_batch,
)
from torusrun.orchestrator.forecast.interval import Factor, Interval
from torusrun.orchestrator.forecast.workload import FOR_PHOTOGRAPHS, MeasuredFacts, Workload, workload, workload_of
from torusrun.orchestrator.keys.as_asked import uses_gpus
from torusrun.orchestrator.keys.measured import ModelTimes
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.placement.arrange import Charge
from torusrun.orchestrator.place.placement.choose import GRADIENT_BYTES
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.schedulers.client import Client
from torusrun.training.recipe.facts import LAYOUT, compiles, program, read_program, variant
from torusrun.training.recipe.train import ModelKeys, Train
from torusrun.training.schedule import Course

ASKING_S = 10.0
GIVEN = "--images-per-s"
AT_WHICH = f"it is unknown at which batch of a rank {GIVEN} was measured: RATE@BATCH says it"

FIXED = (
    "the fixed part of a step, {:.1f} ms, is not that of this program, and the rate is that of {:g} images, not {:g}"
)


@dataclass(frozen=True)
class Otherwise:
    """Values that replace those of the site and the run. `images_per_s` were measured at a rank's batch of `at`."""

    network: str | None = None
    gpu: str | None = None
    workload: str | None = None
    images_per_s: float | None = None
    at: float | None = None


def measured_facts(site: Site) -> MeasuredFacts:
    """What measuring runs at the site have counted of models and data sets."""
    models, data = site.measured.models, site.measured.data
    return MeasuredFacts(
        {name: model.tensors for name, model in models.items() if model.tensors},
        {name: times.samples for name, times in data.items() if times.samples},
    )


def gpu_of(plan: Plan, other: Otherwise) -> str | None:
    """The name of the shipped GPU that the forecast is for; None for ranks on CPUs, and for an unknown GPU."""
    node = plan.site.node
    return other.gpu or (device_for(node.architecture, _gpu_type(plan.site)) if plan.site.gpus else None)


def _gpu_type(site: Site) -> str | None:
    """The type of the GPUs by the site's file; if this machine is the site and the file is silent, by nvidia-smi."""
    if site.gpu_type or not site.gpus or not schedulers.get(site.scheduler).traits.one_machine:
        return site.gpu_type
    return gpus_here(site.scheduler)


@lru_cache(maxsize=1)
def gpus_here(scheduler: str) -> str | None:
    """The type of this machine's GPUs; None without nvidia-smi or its answer, for different GPUs and unknown names."""
    kind = Client(schedulers.get(scheduler), ASKING_S).describe().queues[0].kind
    return kind.gpu_type if kind else None


def train_of(plan: Plan, other: Otherwise) -> Train:
    """The training that is predicted. Another network takes channels last, as published ones, if the run is silent."""
    train = plan.run.train
    if other.workload:
        layout = {LAYOUT: train.model.options.get(LAYOUT, True)} if other.workload in FOR_PHOTOGRAPHS else {}
        train = replace(train, model=ModelKeys(other.workload, layout))
    return replace(train, compile=compiles(train, bool(other.gpu) or uses_gpus(plan.run, plan.site)))


def device_of(plan: Plan, trained: Workload, other: Otherwise) -> Device:
    """The device with the program of the run. Raises UserError if no rate is known."""
    if other.images_per_s is not None:
        return _given(plan, trained, other, other.images_per_s)
    train = train_of(plan, other)
    if not other.gpu and (here := _measured_here(plan, train, _batch(plan, trained))):
        return here
    if trained.name != "resnet50":
        raise UserError(
            f"the speed of {trained.name} at {plan.run.site} is unknown: `torusrun calibrate RUN.yaml` measures it, "
            f"`torusrun predict RUN.yaml {GIVEN} RATE` takes the rate of one rank from you, and "
            "`torusrun predict RUN.yaml --workload resnet50` predicts that network"
        )
    node, gpu_type = plan.site.node, _gpu_type(plan.site)
    name = other.gpu or device_for(node.architecture, gpu_type)
    if name is None:
        raise UserError(
            f"no rate is known for the site's GPUs ({gpu_type or node.architecture or 'no type and no architecture'}): "
            "name one with `torusrun predict RUN.yaml --gpu NAME`"
        )
    device = device_with(name, variant(train)).for_work(trained.image_work / workload("resnet50").image_work)
    return device if other.gpu else replace(device, factors=(*device.factors, *of_architecture(name, gpu_type)))


def _batch(plan: Plan, trained: Workload) -> float:
    """The images of a rank in a step of the first phase."""
    return Course(plan.run.train, trained.images).phases[0].batch / plan.ranks


def _given(plan: Plan, trained: Workload, other: Otherwise, rate: float) -> Device:
    """The device by the rate of a rank that the user gives. What is known of the fixed part of a step stays."""
    train, name, batch = train_of(plan, other), gpu_of(plan, other), _batch(plan, trained)
    here = _measured_here(plan, train, batch) if not other.gpu else None
    of_gpu = device_with(name, variant(train)) if name else None
    fixed_s = here.fixed_s if here else of_gpu.fixed_s if of_gpu else 0.0
    at = other.at or (reference_batch(name) if name else batch)
    device = replace(measured(GIVEN, at, at / rate, fixed_s), passes=train.accumulate)
    if not device.fixed_s:  # nothing is known of it
        return replace(device, batches=(at, at))
    if at == batch:
        return device
    share, given = device.fixed_s / device.step_s(batch), batch / rate / device.step_s(batch)
    shortest = 1 - share if other.at else min(1 - share, given)  # it may have been measured at this very batch
    why = FIXED.format(1e3 * device.fixed_s, at, batch) if other.at else AT_WHICH
    return replace(device, factors=(Factor(why, Interval(shortest, 1 + share)),))


def _measured_here(plan: Plan, train: Train, batch: float) -> Device | None:
    """The device by a measurement of this model at the site; if it had another precision and the like, with doubts."""
    models, wanted = plan.site.measured.models, variant(train)
    if (own := models.get(program(train))) and own.image_us:
        return _measured_as(own, wanted.passes)
    known = {of: times for key, times in models.items() if times.image_us and (of := read_program(key, train.model))}
    if not known:
        return None
    has_gpus = plan.site.gpus > 0
    if wanted.precision == "tf32" and not has_gpus:  # on processors it is fp32
        wanted = replace(wanted, precision="fp32")
    nearest = max(known, key=lambda of: (of.precision == wanted.precision, of.compiled == wanted.compiled, str(of)))
    here = _measured_as(known[nearest], nearest.passes)
    units = ("tf32", "bf16", "fp16") if has_gpus else ()
    times = images_per_s(nearest, units) / images_per_s(wanted, units) if has_gpus else 1.0
    doubts = factors(nearest, wanted, units, "gpu" if has_gpus else "processor")
    made = here.with_passes(wanted.passes)
    if nearest.passes != wanted.passes:  # the fixed time may be that of a step, not of each pass
        other = here.step_s(batch) / made.step_s(batch)
        doubts = (*doubts, Factor(PASSES.format(wanted.passes), Interval(min(other, 1.0), max(other, 1.0))))
    return made.slower(times, doubts, f"as measured here in {nearest}, in {wanted}")


def _measured_as(times: ModelTimes, passes: int) -> Device:
    """The device with these times."""
    return Device(
        "as measured here",
        times.step_us / 1e6,
        times.image_us / 1e6,
        ranks=times.ranks,
        spread=times.spread,
        measured=True,
        batches=(times.batch, 2.0 * times.batch) if times.batch else None,
        passes=passes,
    )


def gradient_of(plan: Plan) -> tuple[float, str]:
    """(the bytes that one all-reduce of the run sums, their description); if unknown, those of ResNet-50."""
    if not plan.run.command:
        with suppress(UserError):
            trained = workload_of(plan.run.train, measured=measured_facts(plan.site))
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
    return "nccl" if uses_gpus(plan.run, plan.site) else "gloo"


def saving(plan: Plan, trained: Workload) -> Saving:
    """The cost of a save of the network `trained`."""
    times = plan.site.measured.models.get(trained.name)
    measured_us = times.save_us if times else 0.0
    parameters = sum(layer.parameters for layer in trained.layers)
    save_s = measured_us / 1e6 if measured_us else predicted_s(parameters)
    every_steps, copies = plan.run.train.checkpoint_every_steps, plan.run.train.checkpoints.memory
    kept = in_memory(parameters) if copies else None
    return Saving(save_s, measured_us > 0, every_steps, plan.mean_time_to_failure_s, kept)


def saving_of(plan: Plan) -> Saving | None:
    """The cost of a save of the plan's own network; None for a command or an own network without a measurement."""
    if plan.run.command:
        return None
    try:
        return saving(plan, workload_of(plan.run.train, measured=measured_facts(plan.site)))
    except UserError:
        return None
