"""The keys of `train:`, each declared here and nowhere else.

The reader of run files, the training, the JSON schema and docs/reference/spec.md read these classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.training.recipe.key import Items, Limits, Pattern, key, needed
from torusrun.training.recipe.names import DATA_SETS, MODELS, OPTIMIZERS, SCHEDULES, RecipeName, is_own

EPOCHS = Limits(above=0, at_most=1e6)
RATE = Limits(at_least=0, at_most=1e9)
PIXELS = Limits(at_least=1, at_most=4096)

Share = Annotated[float, Limits(above=0, at_most=1.0)]
Ratio = Annotated[float, Limits(above=0, at_most=100.0)]
Rates = Annotated[tuple[Annotated[float, RATE], ...], Items(1, 2)]


@dataclass(frozen=True)
class PhaseKeys:
    """A part of the run, from the end of the phase before to `until`."""

    until: Annotated[float, EPOCHS] = needed("end of the phase; the last phase ends at train.epochs", unit="epochs")
    lr: Rates | None = key(None, "learning rate, or [from, to]; without it in all phases train.schedule sets the rate")
    power: Annotated[float, Limits(above=0, at_most=100)] = key(
        1.0, "of the rate: to + (from - to) * (1 - x)^power, x from 0 at its start to 1 at `reach`"
    )
    reach: Annotated[float, EPOCHS] | None = key(
        None, "epoch at which the second rate would be reached; default: `until`", unit="epochs"
    )
    batch: Annotated[int, Limits(at_least=1, at_most=10**9)] | None = key(None, "samples per step, over all ranks")
    size: Annotated[int, PIXELS] | None = key(None, "side of training images", unit="pixels")
    test_size: Annotated[int, PIXELS] | None = key(None, "side of test images", unit="pixels")
    rectangular: bool | None = key(None, "test images keep their aspect ratio")
    area: tuple[Share, Share] | None = key(None, "least and largest share of an image that a random crop takes")
    augment: bool | None = key(None, "whether training images are changed at random")
    weight_decay: Annotated[float, Limits(at_least=0, at_most=1e6)] | None = key(None, "L2")
    collapse: bool = key(
        False, "a branch: at its end its weights join the ensemble, and the state is that of its start again"
    )


Option = str | int | float | bool | tuple[int | float, ...]
Options = dict[Annotated[str, Pattern("the name of an argument", r"[A-Za-z_][A-Za-z0-9_]{0,63}")], Option]
STEPS = Limits(at_least=1, at_most=10**9)
WEIGHTS = Pattern("the absolute path of a .safetensors file", r"[/~$].{0,4000}\.safetensors")
AREA, ASPECT, MARGIN, LOSS_SCALE = (0.08, 1.0), (3 / 4, 4 / 3), 1.14, 65536.0


@dataclass(frozen=True)
class ModelKeys:
    """The network."""

    name: Annotated[str, MODELS] = key("resnet-digits", "the network")
    options: Options = key({}, "arguments of its builder")
    weights: Annotated[str, WEIGHTS] | None = key(
        None, "a safetensors file with the initial weights: an absolute path that exists on all nodes"
    )
    new: tuple[str, ...] = key(
        (), "weights that are not read from the file, by the beginnings of their names, as in [fc.]"
    )


@dataclass(frozen=True)
class DataKeys:
    """The data set, and how its images look; phases may change that."""

    name: Annotated[str, DATA_SETS] = key("digits", "the data set")
    options: Options = key({}, "arguments of its builder")
    size: Annotated[int, PIXELS] | None = key(None, "side of a training image; default: the data set's", unit="pixels")
    test_size: Annotated[int, PIXELS] | None = key(None, "side of a test image; default: `size`", unit="pixels")
    test_margin: Annotated[float, Limits(at_least=1, at_most=10)] = key(
        MARGIN,
        "short side of a test image / side of its tested middle; 1.1429 for 224 of 256 pixels",
        source="fast.ai 2018, verified",
    )
    area: tuple[Share, Share] = key(
        AREA, "least and largest share of an image that a random crop takes", source="torchvision, verified"
    )
    aspect: tuple[Ratio, Ratio] = key(
        ASPECT, "smallest and largest width / height of a random crop", source="torchvision, verified"
    )
    augment: bool = key(True, "change training images at random")
    rectangular: bool = key(
        False, "test images keep their aspect ratio, in batches of similar ones", source="fast.ai 2018, verified"
    )
    workers: Annotated[int, Limits(at_least=1, at_most=256)] | None = key(
        None, "threads of a rank that decode images; default: its cores, at most 8"
    )


@dataclass(frozen=True)
class LarsKeys:
    """How LARS scales the step of each tensor; read where the optimizer is lars."""

    trust: Annotated[float, Limits(above=0, at_most=1e6)] = key(
        0.001, "the trust coefficient", source="NVIDIA's MLPerf 0.6 submission, verified"
    )
    eps: Annotated[float, Limits(at_least=0, at_most=1.0)] = key(0.0, "added to the norm of the gradient")
    lr_in_momentum: bool = key(True, "the learning rate scales the gradient, not the velocity (MLPerf)")
    ratio_in_momentum: bool = key(
        True,
        "the ratio scales the gradient, not the velocity",
        source="tf.contrib.opt.LARSOptimizer: false in 1.14.0, true in 1.15.0, verified",
    )
    ratio_decay: Annotated[float, Limits(at_least=0, at_most=1e6)] | None = key(
        None,
        "the weight decay in the ratio's denominator; default: train.optimizer.weight_decay",
        source="Fujitsu's MLPerf 0.6 submission, verified",
    )
    skip: Literal["vectors", "normalization", "nothing"] = key(
        "vectors",
        "tensors without ratio and decay: batch norm and biases (vectors), modules called *Norm, or none",
        source="vectors: MLPerf's reference, verified",
    )
    form: Literal["auto", "foreach", "fused"] = key(
        "auto", "fused: all tensors in one call, in C++ or Triton; auto: fused if all ranks can"
    )


@dataclass(frozen=True)
class OptimizerKeys:
    """How gradients move the weights."""

    name: Annotated[str, OPTIMIZERS] = key("sgd", "the optimizer")
    lr: Annotated[float, Limits(above=0, at_most=1e9)] = key(0.1, "learning rate after the warm-up")
    momentum: Annotated[float, Limits(at_least=0, at_most=0.9999)] = key(0.9, "share of the velocity that a step keeps")
    weight_decay: Annotated[float, Limits(at_least=0, at_most=1e6)] = key(
        1e-4, "L2, not on batch norm and biases", source="Goyal et al. 2017, section 5.3"
    )
    decay_vectors: bool = key(False, "weight decay on batch norm and biases too")
    nesterov: bool = key(False, "look ahead along the velocity, with the optimizer sgd")
    lr_in_momentum: bool = key(
        False, "the learning rate scales the gradient, not the velocity; LARS has lars.lr_in_momentum"
    )
    momentum_correction: bool = key(
        False,
        "with lr_in_momentum: the velocity changes with the rate",
        source="Goyal et al. 2017, remark 2, from memory",
    )
    lars: LarsKeys = key(LarsKeys(), "how LARS scales each tensor's step")
    options: Options = key({}, "arguments of its builder")


@dataclass(frozen=True)
class ScheduleKeys:
    """How the learning rate changes."""

    name: Annotated[str, SCHEDULES] = key("cosine", "the decay after the warm-up")
    warmup_epochs: Annotated[float, Limits(at_least=0, at_most=1e6)] = key(
        1.0, "linear warm-up", unit="epochs", source="Goyal et al. 2017, section 2.2"
    )
    end_lr: Annotated[float, RATE] = key(0.0, "learning rate at the end of the decay")
    options: Options = key({}, "arguments of its builder")


@dataclass(frozen=True)
class EvaluateKeys:
    """When the test set is seen. The end of the run is always evaluated."""

    every: Annotated[int, Limits(at_least=1, at_most=1_000_000)] = key(
        1, "between evaluations", unit="epochs", short=True
    )
    first: Annotated[int, Limits(at_least=1, at_most=1_000_000)] | None = key(
        None, "the first evaluation; default: `every`", unit="epochs"
    )

    @property
    def begins(self) -> int:
        """The epoch after which the first evaluation is due."""
        return self.first or self.every


@dataclass(frozen=True)
class SyncKeys:
    """How the ranks average their gradients."""

    all_reduce: Literal["auto", "torus", "flat", "hierarchical", "hybrid", "ddp"] = key(
        "auto",
        "torus (over the grid), flat (the library's own), auto (of both the quicker by size, as calibrate measured), "
        "hierarchical, hybrid (hierarchical below 1 MiB), ddp (torch's own)",
        short=True,
    )
    buckets: Literal["auto", "exact", "fujitsu", "ddp", "one"] = key(
        "auto",
        "which gradients are reduced together: exact (best by measured times), fujitsu, ddp (1 MiB, then 25 MiB), one, "
        "or auto: exact on a GPU, one on a CPU",
    )
    wire: Literal["fp32", "fp16", "bf16"] = key("fp32", "the type in which gradients are sent")


@dataclass(frozen=True)
class NormKeys:
    """Batch normalization, in every layer of the model that has it."""

    statistics: Literal["moving", "last"] = key(
        "moving",
        "evaluation normalizes with moving averages, or with the last batch's mean and variance over all ranks",
        source="last: Akiba et al. 2017, arXiv 1711.04325",
    )
    momentum: Annotated[float, Limits(above=0, at_most=1)] | None = key(
        None, "share of the newest batch in the moving averages; null: the model's own"
    )
    eps: Annotated[float, Limits(above=0, at_most=1)] | None = key(None, "added to the variance; null: the model's own")
    ranks: Annotated[int, Limits(at_least=1, at_most=10**6)] = key(
        1, "consecutive ranks that normalize together", source="Ying et al. 2018, arXiv 1811.06992"
    )


@dataclass(frozen=True)
class CheckpointKeys:
    """Which checkpoints stay; the others are deleted."""

    last: Annotated[int, Limits(at_least=1, at_most=1_000_000)] = key(3, "number of the newest ones", short=True)
    best: bool = key(False, "save after each best evaluation so far, and keep that")
    memory: bool = key(
        False,
        "after every step copy the state to the memory of each node (twice, in /dev/shm), from which the next attempt "
        "in the same job continues",
    )


@dataclass(frozen=True)
class Train:
    """What the ranks do; handed to `python -m torusrun.training` unchanged."""

    recipe: RecipeName | None = key(None, "a published recipe, fitted to ranks and data set; other keys override it")
    model: ModelKeys = key(ModelKeys(), "the network")
    data: DataKeys = key(DataKeys(), "the data set")
    optimizer: OptimizerKeys = key(OptimizerKeys(), "how gradients move the weights")
    schedule: ScheduleKeys = key(ScheduleKeys(), "how the learning rate changes")
    phases: tuple[PhaseKeys, ...] = key(
        (), "parts of the run with their own batch, images or learning rates; what one leaves out stays as before"
    )
    evaluate: EvaluateKeys = key(EvaluateKeys(), "when the test set is evaluated")
    sync: SyncKeys = key(SyncKeys(), "how the ranks average their gradients")
    norm: NormKeys = key(NormKeys(), "batch normalization")
    device: Literal["auto", "cpu", "cuda"] = key("auto", "auto takes a GPU if there is one")
    epochs: Annotated[int, Limits(at_least=1, at_most=1_000_000)] = key(20, "passes over the training set")
    batch: Annotated[int, Limits(at_least=1, at_most=10**9)] = key(64, "samples per step, over all ranks")
    clip_norm: Annotated[float, Limits(at_least=0, at_most=1e9)] = key(
        0.0, "largest norm of the mean gradient; 0: no limit", source="torch's clip_grad_norm_"
    )
    accumulate: Annotated[int, Limits(at_least=1, at_most=10**6)] = key(
        1, "backward passes of a rank in a step, each on a part of its samples"
    )
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = key(
        "fp32", "type of matrix products and convolutions; weights stay in fp32"
    )
    loss_scale: Annotated[float, Limits(at_least=1, at_most=2.0**60)] = key(
        LOSS_SCALE,
        "first factor of the loss in fp16, rounded to a power of two",
        source="torch.amp.GradScaler, verified",
    )
    compile: bool | None = key(
        None,
        "torch.compile the network; on a GPU replay built-in networks' steps as CUDA graphs; it needs a C++ compiler; "
        "default: built-in networks on a GPU, if it can",
    )
    label_smoothing: Annotated[float, Limits(at_least=0, at_most=0.99)] = key(
        0.1, "share of the target spread over all classes"
    )
    seed: Annotated[int, Limits(at_least=0, at_most=2**32 - 1)] = key(1, "for the random weights, order and shifts")
    checkpoint_every_steps: Annotated[int, STEPS] | None = key(
        None,
        "interval; default: sqrt(2 x the time of a save x the time between failures)",
        unit="steps",
        source="Young 1974, Daly 2006",
    )
    checkpoints: CheckpointKeys = key(CheckpointKeys(), "which checkpoints are kept")
    log_every_steps: Annotated[int, STEPS] = key(5, "interval between rows of metrics", unit="steps")
    trace: bool = key(False, "a line for every step in the attempt's trace.jsonl")

    @property
    def needs_code(self) -> bool:
        """Whether it names a function of the user's own."""
        return any(is_own(part.name) for part in (self.model, self.data, self.optimizer, self.schedule))
