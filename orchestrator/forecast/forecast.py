"""One run: the time of its steps by part, its throughput, its end, and its cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from torusrun.orchestrator.forecast import doubts, epochs
from torusrun.orchestrator.forecast.checkpoints import CheckpointCost, cost
from torusrun.orchestrator.forecast.device import BACKWARD_SHARE
from torusrun.orchestrator.forecast.epochs import Epochs
from torusrun.orchestrator.forecast.interval import Doubt, Interval
from torusrun.orchestrator.forecast.step import EXACT, Step, Stragglers, stragglers
from torusrun.orchestrator.forecast.step import step as step_of
from torusrun.orchestrator.forecast.workload import Asked, PhaseSteps, Workload
from torusrun.training.counted import counted

SCHEMA = 1
EXACTLY = "gradients go in the groups of the exact plan while backward runs"
GROUPED = "gradients go in {} groups while backward runs"
SIZES = "an image takes time in proportion to its area"
NORMS = "two all-reduces for each layer, with the time of the first group alone; nothing computes during them"
PUBLISHED = ("as seven published runs imply", "as ten published runs that replay their steps imply")
AT_ONCE = "gradients go all at once after backward"


@dataclass(frozen=True)
class PhaseForecast:
    """The steps of a phase, and the interval of the time of a step."""

    batch: int
    steps: int
    step_s: float
    interval_s: Interval


@dataclass(frozen=True)
class Forecast:
    """The predicted times of a run; the times of a step are for the phase that takes longest.

    `intervals` has the bounds of these numbers at 90 %, by name; `doubts` are what widens that of the step.
    """

    ranks: int
    grid: tuple[int, ...]
    best_grid: tuple[int, ...]
    forward_s: float
    backward_s: float
    fixed_s: float
    stragglers_s: float
    exposed_s: float
    norms_s: float
    input_s: float
    reading_s: float | None  # of a batch, beside the step
    all_reduce_s: float
    best_grid_all_reduce_s: float
    groups: tuple[int, ...]
    step_s: float
    steps: int
    images_per_s: float
    train_s: float
    validation_s: float
    node_hours: float
    points: float | None  # that the site charges
    epochs_to_target: float | None
    to_target_s: float | None
    target: str  # the accuracy
    epochs_source: str
    phases: tuple[PhaseForecast, ...]
    checkpoints: CheckpointCost
    intervals: dict[str, Interval]
    doubts: tuple[Doubt, ...]
    assumptions: tuple[str, ...]

    @property
    def total_s(self) -> float:
        return self.train_s + self.validation_s

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "total_s": self.total_s}


def forecast(asked: Asked) -> Forecast:
    """Predict a run without disturbances, with the interval of each number."""
    steps = [(phase, _step(asked, phase)) for phase in asked.phases]
    phases = tuple(
        PhaseForecast(phase.batch, phase.steps, step.total_s, doubts.interval_of(step, _doubts(asked, phase, step)))
        for phase, step in steps
    )
    train_s = sum(phase.steps * phase.step_s for phase in phases)
    at = max(range(len(phases)), key=lambda index: phases[index].steps * phases[index].step_s)
    longest, step = steps[at]
    local = longest.batch / asked.ranks
    alone = 1 + min(0.0, step.stragglers_s) / step.compute_s  # the share without the wait for ranks of a larger run
    image_s = asked.device.image_s * longest.work * alone
    evaluation_s = asked.workload.test_images / asked.ranks * asked.device.image_s * (1 - BACKWARD_SHARE)
    validation_s = asked.evaluations * evaluation_s
    node_hours, price = asked.nodes * (train_s + validation_s) / 3600, asked.points_per_node_hour
    target, images = _epochs(asked), sum(phase.steps * phase.batch for phase in phases)
    parts = _doubts(asked, longest, step)
    all_reduce_s = asked.communication.all_reduce_s(asked.workload.gradient_bytes)
    intervals = {
        "step_s": phases[at].interval_s,
        "stragglers_s": _waits_between(step),
        "exposed_s": step.exposed_between_s,
        "input_s": Interval(*(max(0.0, bound - step.busy_s) for bound in step.reading_between_s)),
        **({"reading_s": step.reading_between_s} if asked.reading else {}),
        "all_reduce_s": asked.links_factor.times(all_reduce_s),
        "best_grid_all_reduce_s": asked.links_factor.times(asked.communication.best_s),
        **_totals(asked, phases, validation_s, images, target),
    }
    return Forecast(
        ranks=asked.ranks,
        grid=asked.grid,
        best_grid=asked.communication.best_grid,
        forward_s=local * image_s * (1 - BACKWARD_SHARE),
        backward_s=local * image_s * BACKWARD_SHARE,
        fixed_s=step.compute_s * alone - local * image_s,
        stragglers_s=max(0.0, step.stragglers_s),
        exposed_s=step.exposed_s,
        norms_s=step.norms_s,
        input_s=step.input_s,
        reading_s=step.reading_s if asked.reading else None,
        all_reduce_s=all_reduce_s,
        best_grid_all_reduce_s=asked.communication.best_s,
        groups=step.buckets,
        step_s=step.total_s,
        steps=sum(phase.steps for phase in asked.phases),
        images_per_s=images / train_s,
        train_s=train_s,
        validation_s=validation_s,
        node_hours=node_hours,
        points=None if price is None else price * node_hours,
        epochs_to_target=target.expected,
        to_target_s=target.expected * (train_s + validation_s) / asked.epochs if target.expected else None,
        target=target.target,
        epochs_source=target.source,
        phases=phases,
        checkpoints=cost(asked.saving, step.total_s),
        intervals=intervals,
        doubts=parts,
        assumptions=_assumptions(asked, step),
    )


def _waits_between(step: Step) -> Interval:
    waits = step.stragglers.wait_between(step.compute_s) if step.stragglers else Interval(0.0, 0.0)
    return Interval(max(0.0, waits.low), max(0.0, waits.high))


def _doubts(asked: Asked, phase: PhaseSteps, step: Step) -> tuple[Doubt, ...]:
    of_step = doubts.of_step(asked.device, phase.batch / asked.ranks, step, asked.compute, asked.links_factor)
    return (*of_step, *doubts.sharing(step, asked.ranks_per_core))


def _totals(
    asked: Asked, phases: tuple[PhaseForecast, ...], validation_s: float, images: int, target: Epochs
) -> dict[str, Interval]:
    """The intervals of whole times. What is doubtful is so in all steps alike, so their bounds add up."""
    train = Interval(
        sum(phase.steps * phase.interval_s.low for phase in phases),
        sum(phase.steps * phase.interval_s.high for phase in phases),
    )
    validation = doubts.all_of(asked.compute, asked.device).times(validation_s)
    total = Interval(train.low + validation.low, train.high + validation.high)
    totals = {
        "images_per_s": train.rate_of(images),
        "train_s": train,
        "validation_s": validation,
        "total_s": total,
        "node_hours": total.times(asked.nodes / 3600),
    }
    if asked.points_per_node_hour is not None:
        totals["points"] = total.times(asked.nodes / 3600 * asked.points_per_node_hour)
    if target.expected:
        ends = [bound * each / asked.epochs for bound, each in zip(total, target.interval, strict=True)]
        totals |= {"epochs_to_target": target.interval, "to_target_s": Interval(*ends)}
    return totals


def _epochs(asked: Asked) -> Epochs:
    """The epochs to the target, if the run trains ResNet-50 on ImageNet with one batch or as a recipe says."""
    if asked.workload.name != "resnet50" or asked.workload.images != epochs.images():
        return epochs.UNKNOWN
    batches = {phase.batch for phase in asked.phases}
    if asked.recipe and (known := epochs.of_recipe(asked.recipe, max(batches))):
        return known
    return epochs.to_target(batches.pop()) if len(batches) == 1 else epochs.UNKNOWN


def _step(asked: Asked, phase: PhaseSteps) -> Step:
    """A step of a phase, with its input."""
    batch, trained, read = phase.batch / asked.ranks, asked.workload, asked.reading
    busy = step_of(
        replace(asked.device, image_s=asked.device.image_s * phase.work),
        batch,
        asked.communication.all_reduce_s,
        network=trained.layers,
        bytes_per_parameter=trained.bytes_per_parameter,
        grouping=trained.grouping,
        norms_s=asked.communication.norms_s,
        stragglers=_stragglers(asked),
        links_factor=asked.links_factor,
    )
    if read is None:
        return busy
    between = read.of_batch(batch, doubts.number("same_program"))
    return replace(busy, reading_s=batch * read.file_system_s, reading_between_s=between)


def _stragglers(asked: Asked) -> Stragglers:
    return stragglers(asked.ranks, asked.device.ranks, asked.device.spread, replayed=asked.device.replayed)


def _sent(trained: Workload, step: Step) -> str:
    """What the ranks send, and when."""
    if trained.grouping == EXACT:
        return EXACTLY
    return GROUPED.format(len(step.buckets)) if len(step.buckets) > 1 else AT_ONCE


def _assumptions(asked: Asked, step: Step) -> tuple[str, ...]:
    links = ", ".join(
        f"{level.name} {level.bandwidth_bytes_per_s / 1e9:g} GB/s and {level.latency_s * 1e6:g} us"
        for level in asked.network.levels
    )
    trained = asked.workload
    norms = (f"batch norm over {counted(trained.norm_ranks, 'rank')}: {NORMS}",) if trained.norms else ()
    reading = "" if asked.reading else " reading and decoding images,"
    sizes = () if all(phase.work == 1.0 for phase in asked.phases) else (SIZES,)
    device = asked.device
    launches = f", and at least {device.launches_s * 1e3:.1f} ms to launch its kernels" if device.launches_s else ""
    return (
        f"{device.name}: {1 / device.image_s:.0f} images/s on one rank besides "
        f"{device.fixed_s * 1e3:.1f} ms a step{launches}",
        f"links: {links}; {asked.communication.placed}; no other jobs on them",
        f"{_sent(trained, step)}; validation passes: {asked.evaluations}",
        *norms,
        *sizes,
        _waits(asked),
        f"not modelled: start-up,{reading} compute that communication slows, faults",
    )


def _waits(asked: Asked) -> str:
    """How the slowest rank is predicted."""
    device = asked.device
    source = PUBLISHED[device.replayed] if device.spread is None else "as measured here"
    rate = f"the rate is that of a run on {counted(device.ranks, 'rank')}"
    return f"a rank's compute differs from step to step by {100 * _stragglers(asked).sigma:.2g} %, {source}; {rate}"
