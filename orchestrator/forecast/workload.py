"""What determines the time of a run: the work of its training, its steps, device, links and all-reduce."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.forecast import doubts, step
from torusrun.orchestrator.forecast.checkpoints import Saving
from torusrun.orchestrator.forecast.device import Device
from torusrun.orchestrator.forecast.interval import Factor, Interval
from torusrun.orchestrator.forecast.step import EXACT, Grouping, InputTime
from torusrun.orchestrator.place.cost.algorithms import TORUS
from torusrun.orchestrator.place.cost.all_reduce import Cost
from torusrun.orchestrator.place.cost.regular import Network
from torusrun.training.recipe.facts import DataFacts, ModelFacts, Tensor, data_facts, model_facts, named
from torusrun.training.recipe.names import MODELS, is_own
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import ModelKeys, SyncKeys, Train
from torusrun.training.sync import plans

FOR_PHOTOGRAPHS = ("resnet18", "resnet50")
BESIDE_GRADIENTS = 2  # numbers that training/sync sends along: the loss, and whether to stop


@dataclass(frozen=True)
class MeasuredFacts:
    """What a measuring run has counted: by model the parameters of each tensor, by data set the samples of both parts.

    The names have the options of models and data sets (training/recipe/facts.py).
    """

    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    samples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """A network with its data set. `layers` are what is reduced, in order, in the groups of `grouping`.

    `norms` are the channels of the batch norms that `norm_ranks` ranks share; empty if each rank has its own.
    """

    name: str
    layers: tuple[Tensor, ...]
    images: int
    test_images: int
    bytes_per_parameter: float
    grouping: Grouping = EXACT
    side: int | None = None  # of an image, in pixels; None if the samples are not images
    norms: tuple[int, ...] = ()
    norm_ranks: int = 1

    @property
    def image_work(self) -> float:
        """Multiply-adds of a forward pass of one image."""
        return sum(layer.work for layer in self.layers)

    @property
    def gradient_bytes(self) -> float:
        return self.bytes_per_parameter * sum(layer.parameters for layer in self.layers)


def workload(name: str, sync: SyncKeys = TORUS, gpus: bool = True) -> Workload:
    """A residual network on ImageNet, or a built-in model on the default data set.

    Its ranks send as `sync` says. Raises UserError for any other name.
    """
    if name in FOR_PHOTOGRAPHS:
        data = step.photographs()
        model = model_facts(Train(model=ModelKeys(name)), data)
        assert model, "it is a built-in"
        layers, side = tuple(reversed(model.tensors)), data.shape[-1]
        grouping, samples = _grouping(sync, layers, gpus, beside=0), (data.train_samples, data.test_samples)
        return Workload(name, layers, *samples, _bytes_of(sync), grouping, side)
    if name not in MODELS.known:
        raise UserError(f"--workload {name}: there is no such name; there are: {_known()}")
    return workload_of(Train(model=ModelKeys(name), sync=sync), gpus)


def workload_of(train: Train, gpus: bool = False, measured: MeasuredFacts = MeasuredFacts()) -> Workload:
    """The workload of a recipe, as `training.sync` reduces it on GPUs or on CPUs.

    What its files do not say of a model or a data set is taken from what was `measured`. Raises UserError.
    """
    data, model = _data_of(train, measured), _model_of(train, measured)
    statistics = model.statistics if train.norm.statistics == "moving" else 0
    beside, gradients = Tensor(statistics + BESIDE_GRADIENTS, 0), tuple(reversed(model.tensors))
    return Workload(
        name=train.model.name,
        layers=(beside, *gradients),
        images=data.train_samples,
        test_images=data.test_samples,
        bytes_per_parameter=_bytes_of(train.sync),
        grouping=_grouping(train.sync, gradients, gpus, beside=1),
        side=data.shape[-1] if len(data.shape) > 1 else None,
        norms=model.norms if train.norm.ranks > 1 else (),
        norm_ranks=train.norm.ranks,
    )


def _data_of(train: Train, measured: MeasuredFacts) -> DataFacts:
    if data := data_facts(train):
        return data
    if samples := measured.samples.get(named(train.data)):
        return DataFacts(samples[0], samples[-1], classes=0, shape=())
    raise _unknown("data", train.data.name)


def _model_of(train: Train, measured: MeasuredFacts) -> ModelFacts:
    """The facts of the model; gradients of a measured model are taken to be ready in proportion to their parameters."""
    data = data_facts(train)
    try:
        model = model_facts(train, data) if data else None
    except ConfigError as error:
        raise UserError(str(error)) from None
    if model:
        return model
    if parameters := measured.tensors.get(named(train.model)):
        return ModelFacts(tuple(Tensor(count, float(count)) for count in parameters), ())
    raise _unknown("model", train.model.name)


def _unknown(kind: str, name: str) -> UserError:
    unknown = f"{kind} {name} of your own" if is_own(name) else f"{kind} {name}, whose files are not seen here,"
    return UserError(
        f"the time of the {unknown} is unknown: `torusrun calibrate RUN.yaml` measures it, "
        f"and --workload NAME predicts one of: {_known()}"
    )


def _bytes_of(sync: SyncKeys) -> float:
    """The bytes of a parameter on the links."""
    return 4.0 if sync.wire == "fp32" or sync.all_reduce == "ddp" else 2.0


def _grouping(sync: SyncKeys, gradients: tuple[Tensor, ...], gpus: bool, beside: int) -> Grouping:
    """The groups that `training.sync` makes. What goes `beside` the gradients is in the first, or before it, alone."""
    ddp = sync.all_reduce == "ddp"
    plan = "ddp" if ddp else sync.buckets
    if plan == "exact" or (plan == "auto" and gpus):
        return EXACT
    sizes = [4.0 * tensor.parameters for tensor in gradients]  # the parameters are fp32 whatever the wire is
    first, *others = plans.by_shape("one" if plan == "auto" else plan, sizes)
    alone = ddp or sync.wire != "fp32"
    return ("tensors", [beside, first, *others] if alone and beside else [beside + first, *others])


def _known() -> str:
    return ", ".join(MODELS.known)


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
    """Steps of one batch over all ranks; an image takes `work` times as long as an image of the workload's size."""

    batch: int
    steps: int
    work: float = 1.0


@dataclass(frozen=True)
class Asked:
    """The properties of a run that determine its time.

    `links_error` is the largest relative error of the network's links if they were measured; `recipe` is the name of
    the recipe that it follows; `reading` is None if the input was not measured, or is in the time of a step. More
    than one of `ranks_per_core` means that ranks share cores.
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
    points_per_node_hour: float | None = None
    ranks_per_core: float = 1.0

    @property
    def compute(self) -> Factor:
        return doubts.same_program(self.device.spread) if self.device.measured else doubts.other_program()

    @property
    def links_factor(self) -> Interval:
        return doubts.links_factor(self.links_error)
