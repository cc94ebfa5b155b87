"""One run: the time of its steps by part, its throughput, its end, and its cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.network.cost.all_reduce import Cost
from orchestrator.network.cost.links import Network
from orchestrator.network.prediction import epochs
from orchestrator.network.prediction.checkpoints import CheckpointCost, Saving, cost
from orchestrator.network.prediction.compute import BACKWARD_SHARE, Device
from orchestrator.network.prediction.step import EXACT, Step, step
from orchestrator.network.prediction.workload import Workload
from training.counted import counted

SCHEMA = 1
EXACTLY = "gradients go in the groups of the exact plan while backward runs"
GROUPED = "gradients go in {} groups while backward runs"
SIZES = "an image takes time in proportion to its area"
NORMS = "two all-reduces for each layer, as the first group alone would take, and nothing computes meanwhile"
AT_ONCE = "gradients go all at once after backward"


@dataclass(frozen=True)
class Communication:
    """The all-reduce of a run, the fastest grid with its time for all gradients, and where the ranks are.

    `norms_s` is the time of its batch norms' exchanges in a step.
    """

    all_reduce_s: Cost
    best_grid: tuple[int, ...]
    best_s: float
    placed: str
    norms_s: float


@dataclass(frozen=True)
class PhaseSteps:
    """Steps of one batch over all ranks; an image takes `work` times as long as one of the workload's size."""

    batch: int
    steps: int
    work: float = 1.0


@dataclass(frozen=True)
class Asked:
    """The properties of a run that determine its time."""

    nodes: int
    ranks: int
    grid: tuple[int, ...]
    phases: tuple[PhaseSteps, ...]
    epochs: int
    evaluations: int
    workload: Workload
    device: Device
    network: Network
    communication: Communication
    saving: Saving


@dataclass(frozen=True)
class PhaseForecast:
    """The steps of one phase."""

    batch: int
    steps: int
    step_s: float


@dataclass(frozen=True)
class Forecast:
    """The predicted times of a run; the times of one step are for the phase that takes longest."""

    ranks: int
    grid: tuple[int, ...]
    best_grid: tuple[int, ...]
    forward_s: float
    backward_s: float
    fixed_s: float
    exposed_s: float
    norms_s: float
    all_reduce_s: float
    best_grid_all_reduce_s: float
    groups: tuple[int, ...]
    step_s: float
    steps: int
    images_per_s: float
    train_s: float
    validation_s: float
    node_hours: float
    epochs_to_target: float | None
    to_target_s: float | None
    phases: tuple[PhaseForecast, ...]
    checkpoints: CheckpointCost
    assumptions: tuple[str, ...]

    @property
    def total_s(self) -> float:
        return self.train_s + self.validation_s

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "total_s": self.total_s}


def forecast(asked: Asked) -> Forecast:
    """Predict a run without disturbances."""
    found = [(phase, _step(asked, phase)) for phase in asked.phases]
    train_s = sum(phase.steps * one.total_s for phase, one in found)
    longest, one = max(found, key=lambda each: each[0].steps * each[1].total_s)
    local, image_s = longest.batch / asked.ranks, asked.device.image_s * longest.work
    validation_s = asked.evaluations * _validation_s(asked)
    batches = {phase.batch for phase in asked.phases}
    published = asked.workload.name == "resnet50" and asked.workload.images == epochs.images()
    known = published and len(batches) == 1
    target = epochs.epochs_to_target(longest.batch) if known else None
    return Forecast(
        ranks=asked.ranks,
        grid=asked.grid,
        best_grid=asked.communication.best_grid,
        forward_s=local * image_s * (1 - BACKWARD_SHARE),
        backward_s=local * image_s * BACKWARD_SHARE,
        fixed_s=asked.device.fixed_s,
        exposed_s=one.exposed_s,
        norms_s=one.norms_s,
        all_reduce_s=asked.communication.all_reduce_s(asked.workload.gradient_bytes),
        best_grid_all_reduce_s=asked.communication.best_s,
        groups=one.buckets,
        step_s=one.total_s,
        steps=sum(phase.steps for phase in asked.phases),
        images_per_s=sum(phase.steps * phase.batch for phase in asked.phases) / train_s,
        train_s=train_s,
        validation_s=validation_s,
        node_hours=asked.nodes * (train_s + validation_s) / 3600,
        epochs_to_target=target,
        to_target_s=target * (train_s + validation_s) / asked.epochs if target else None,
        phases=tuple(PhaseForecast(phase.batch, phase.steps, one.total_s) for phase, one in found),
        checkpoints=cost(asked.saving, one.total_s),
        assumptions=_assumptions(asked, one),
    )


def _step(asked: Asked, phase: PhaseSteps) -> Step:
    device, batch = replace(asked.device, image_s=asked.device.image_s * phase.work), phase.batch / asked.ranks
    all_reduce_s, norms_s, trained = asked.communication.all_reduce_s, asked.communication.norms_s, asked.workload
    if trained.every > 1:
        return Step(device.step_s(batch), all_reduce_s(trained.state_bytes) / trained.every, norms_s, ())
    return step(
        device,
        batch,
        all_reduce_s,
        network=trained.layers,
        bytes_per_parameter=trained.bytes_per_parameter,
        grouping=trained.grouping,
        norms_s=norms_s,
    )


def _sent(trained: Workload, one: Step) -> str:
    """What the ranks send, and when."""
    if trained.every > 1:
        return f"the ranks average weights and velocities after every {trained.every} steps, and send nothing else"
    if trained.grouping == EXACT:
        return EXACTLY
    return GROUPED.format(len(one.buckets)) if len(one.buckets) > 1 else AT_ONCE


def _validation_s(asked: Asked) -> float:
    return asked.workload.test_images / asked.ranks * asked.device.image_s * (1 - BACKWARD_SHARE)


def _assumptions(asked: Asked, one: Step) -> tuple[str, ...]:
    links = ", ".join(
        f"{level.name} {level.bandwidth_bytes_per_s / 1e9:g} GB/s and {level.latency_s * 1e6:g} us"
        for level in asked.network.levels
    )
    trained = asked.workload
    norms = (f"batch norm over {counted(trained.norm_ranks, 'rank')}: {NORMS}",) if trained.norms else ()
    sizes = () if all(phase.work == 1.0 for phase in asked.phases) else (SIZES,)
    return (
        f"{asked.device.name}: {1 / asked.device.image_s:.0f} images/s on one rank besides "
        f"{asked.device.fixed_s * 1e3:.1f} ms a step",
        f"links: {links}; {asked.communication.placed}; nobody else on them",
        f"{_sent(trained, one)}; validation passes: {asked.evaluations}",
        *norms,
        *sizes,
        "not modelled: start-up, reading and decoding images, slower nodes, compute that communication slows; "
        "published runs on 1,000 V100 and more lost 3.5 to 8.8 ms a step so (torusrun records)",
    )
