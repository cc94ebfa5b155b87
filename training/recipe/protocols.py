"""The arguments and the results of the four builders that a recipe names.

Each is a function in a module on the ranks' Python path, named as `package.module:function`. It gets its `options` in
the recipe as keyword arguments beside those listed here.

model      `build(*, classes: int, shape: tuple[int, ...], seed: int, **options) -> torch.nn.Module`
           `shape` is that of one sample. The module takes [N, *shape] to logits [N, classes].
data       `build(*, seed: int, **options) -> DataSet`
optimizer  `build(model: torch.nn.Module, train: Train, **options) -> Optimizer`
schedule   `build(train: Train, **options) -> Schedule`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from torusrun.training.progress import Moment

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from torusrun.training.data.view import View

Schedule = Callable[[Moment], float]
"""The learning rate at a point of the training. A pure function: a resumed run asks again from the middle."""


class DataSet(Protocol):
    """Samples to train on, numbered from 0 to `train_samples` - 1, and samples to test on.

    `shape` is that of one sample, labels are numbers from 0 to `classes` - 1. `identity` is a digest to identify the
    samples, their order and classes: a run resumes only with the same. A data set needs the four numbers,
    `train_batch`, and `test_shard` or `test_batches`. If it lacks others, those from here are used.
    """

    train_samples: int
    test_samples: int
    classes: int
    shape: tuple[int, ...]
    identity: str = ""

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Inputs [B, *shape] and labels [B] of (epoch, sample) pairs; random changes are functions of both."""

    def test_shard(self, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """One rank's test samples, of `world` ranks, and their labels; together the ranks have each sample once."""
        raise NotImplementedError

    def test_batches(self, rank: int, world: int) -> Iterable[tuple[Tensor, Tensor]]:
        """The samples of `test_shard` in batches, for test sets that do not fit in memory.

        Ranks may have different numbers of batches, and images may differ in size.
        """
        return [self.test_shard(rank, world)]

    def normalize_on_device(self, inputs: Tensor) -> Tensor:
        """Inputs of a training or test batch as the network takes them; called once they are on the device.

        So images may travel to it as bytes.
        """
        return inputs

    def use(self, workers: int | None) -> None:
        """Set the number of threads that decode, None for its own choice; called once."""
        return None

    def look(self, view: View) -> None:
        """Set the view of images from the next batch on; called before the first step and whenever the view changes.

        Without it a recipe must not change the view.
        """
        return None

    def prefetch(self, samples: list[tuple[int, int]]) -> None:
        """A hint: this rank's samples of the next step, in the same view."""
        return None

    def read(self, samples: list[tuple[int, int]]) -> None:
        """Read what is stored of these samples, and decode nothing; only a measurement calls it."""
        return None

    def problems(self) -> list[str]:
        """A line for every sample that could not be read so far, the newest last."""
        return []


class Optimizer(Protocol):
    """Moves the weights of its model along the `.grad` of each; it must leave every `.grad` in place.

    It needs the first three methods. If it lacks others, those from here are used.
    """

    def step(self, rate: float) -> None:
        """Take one step at this learning rate."""

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint; only types that `torch.load(weights_only=True)` reads."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""

    def before_step(self, moment: Moment, weight_decay: float) -> None:
        """Called before every step with its moment and decay; without it a recipe must not change the decay."""
        return None

    def step_part(self, parameters: Sequence[Parameter], rate: float) -> None:
        """Take the step of only these parameters; without it `step` takes the whole step after all gradients.

        It is called as their gradients arrive; in a step every parameter is in a single call.
        """
        return None

    def finish(self) -> None:
        """Called on all ranks after the last part of a step."""
        return None

    def agree(self, all_ranks: Callable[[bool], bool]) -> str | None:
        """Called on all ranks once they have met, before the first step, so that all use the same implementation.

        `all_ranks` returns whether something is true on all ranks; all must call it together. The returned text goes to
        rank 0's log.
        """
        return None


T = TypeVar("T")


class Complete:
    """`own`, with the methods and values of its `protocol` for those that it lacks."""

    def __init__(self, own: object, protocol: Any) -> None:
        self._own, self._protocol = own, protocol

    def __getattr__(self, name: str) -> Any:
        if (own := getattr(self._own, name, None)) is not None:
            return own
        default = getattr(self._protocol, name)
        return MethodType(default, self) if callable(default) else default


def complete(own: T, protocol: Any) -> T:
    """`own` as a whole `protocol`, which has a default for each method and value that `own` lacks."""
    return cast(T, Complete(own, protocol))


def lacks(own: object, protocol: Any, name: str) -> bool:
    """Whether `own` does not have this method, or only the default of the `protocol`."""
    method = getattr(own, name, None)
    return method is None or getattr(method, "__func__", None) is getattr(protocol, name)
