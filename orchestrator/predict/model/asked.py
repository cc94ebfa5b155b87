"""What determines the time of a run: its steps, device, links and all-reduce."""

from __future__ import annotations

from dataclasses import dataclass

from torusrun.orchestrator.place.cost.all_reduce import Cost
from torusrun.orchestrator.place.cost.links import Network
from torusrun.orchestrator.predict.model import doubts
from torusrun.orchestrator.predict.model.checkpoints import Saving
from torusrun.orchestrator.predict.model.compute import Device
from torusrun.orchestrator.predict.model.input_time import InputTime
from torusrun.orchestrator.predict.model.interval import Factor, Interval
from torusrun.orchestrator.predict.model.workload import Workload


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
    """The properties of a run that determine its time.

    `links_error` is the largest relative error of the network's links if they were measured; `recipe` is the name of
    the recipe that it follows; `reading` is None if the input was not measured, or is in the time of a step. A
    rank's GPU draws `power_w` watts at most. More than one of `ranks_per_core` means that ranks share cores.
    """

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
    links_error: float | None = None
    recipe: str | None = None
    reading: InputTime | None = None
    power_w: float | None = None
    points_per_node_hour: float | None = None
    ranks_per_core: float = 1.0

    @property
    def compute(self) -> Factor:
        return doubts.same_program(self.device.spread) if self.device.measured else doubts.other_program()

    @property
    def links_factor(self) -> Interval:
        return doubts.links_factor(self.links_error)
