"""The residual networks, for photographs and for small images, described for the login node: without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, get_args

from torusrun.training.models.layers import STEM_WIDTH, WIDTHS, Init, Start, Version, convolution, linear
from torusrun.training.recipe.facts import DataFacts, ModelFacts, Tensor
from torusrun.training.recipe.key import Limits
from torusrun.training.recipe.reading import ConfigError, number

if TYPE_CHECKING:
    from torusrun.training.models.resnet import ResNet, SmallResNet

T = TypeVar("T", bound=str)
STD = Limits(at_least=0, at_most=1)
OPTIONS = "train.model.options"


@dataclass(frozen=True)
class Architecture:
    """One network: the number of blocks of each stage, and whether they are bottlenecks."""

    name: str
    blocks: tuple[int, int, int, int]
    bottleneck: bool

    def build(
        self,
        *,
        classes: int,
        shape: tuple[int, ...],
        seed: int,
        version: str = "v1.5",
        init: str = Start.init,
        last_std: float = Start.last_std,
        zero_bias: bool = Start.zero_bias,
        zero_gamma: bool = Start.zero_gamma,
        channels_last: bool | None = None,
    ) -> ResNet:
        """The network with initial weights drawn from `seed`, for images of any size and number of channels.

        `channels_last` is the layout of its weights, which convolutions take over; None: on a GPU, see parts.py.
        Raises ConfigError for samples that are not images, and for an unknown version or init.
        """
        from torusrun.training.models.resnet import ResNet

        return ResNet(
            self.blocks, bottleneck=self.bottleneck, classes=classes, channels=_image(self.name, shape)[0], seed=seed,
            version=_one_of(get_args(Version), "version", version),
            start=_start(init, last_std, zero_bias, zero_gamma), channels_last=channels_last is True,
        )  # fmt: skip

    def facts(
        self,
        data: DataFacts,
        *,
        version: str = "v1.5",
        init: str = Start.init,
        last_std: float = Start.last_std,
        zero_bias: bool = Start.zero_bias,
        zero_gamma: bool = Start.zero_gamma,
        channels_last: bool | None = None,
    ) -> ModelFacts:
        """The tensors, with the multiply-adds for one of the data set's images. Raises ConfigError as `build` does."""
        _start(init, last_std, zero_bias, zero_gamma)
        channels, *image = _image(self.name, data.shape)
        early = _one_of(get_args(Version), "version", version) == "v1"
        side = _halved(image)
        tensors = [*convolution(channels, STEM_WIDTH, 7, side[0] * side[1])]
        side, inputs = _halved(side), STEM_WIDTH  # by the pooling
        for stage, (width, count) in enumerate(zip(WIDTHS, self.blocks, strict=True)):
            for block in range(count):
                before, outputs = side, 4 * width if self.bottleneck else width
                side = _halved(side) if stage and not block else side
                positions = side[0] * side[1]
                if self.bottleneck:
                    first = positions if early else before[0] * before[1]
                    tensors += convolution(inputs, width, 1, first)
                    tensors += [*convolution(width, width, 3, positions), *convolution(width, outputs, 1, positions)]
                else:
                    tensors += [*convolution(inputs, width, 3, positions), *convolution(width, width, 3, positions)]
                if before != side or inputs != outputs:
                    tensors += convolution(inputs, outputs, 1, positions)
                inputs = outputs
        return ModelFacts((*tensors, *linear(inputs, data.classes)), norms=_norms(tensors))


def _image(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image. Raises ConfigError for other samples."""
    if len(shape) != 3:
        raise ConfigError(f"train.model: {name} takes samples of shape (channels, height, width), not {tuple(shape)}")
    return shape


def _start(init: str, last_std: float, zero_bias: bool, zero_gamma: bool) -> Start:
    """How the weights begin, checked."""
    return Start(
        _one_of(get_args(Init), "init", init), number(f"{OPTIONS}.last_std", last_std, STD), zero_bias, zero_gamma
    )


def _one_of(known: tuple[T, ...], name: str, given: str) -> T:
    """`given`, if it is known. Raises ConfigError."""
    for each in known:
        if given == each:
            return each
    raise ConfigError(f"{OPTIONS}.{name}: must be one of {', '.join(known)}, not {given!r}")


def _halved(image: list[int]) -> list[int]:
    """A height and a width after a stride of 2."""
    return [-(-pixels // 2) for pixels in image]


def _norms(tensors: list[Tensor]) -> tuple[int, ...]:
    """The channels of each batch norm. Its scale and its shift are the tensors without multiply-adds."""
    return tuple(tensor.parameters for tensor in tensors if not tensor.work)[::2]


RESNET18 = Architecture("resnet18", (2, 2, 2, 2), bottleneck=False)
build_resnet18, facts_resnet18 = RESNET18.build, RESNET18.facts

RESNET50 = Architecture("resnet50", (3, 4, 6, 3), bottleneck=True)
build_resnet50, facts_resnet50 = RESNET50.build, RESNET50.facts


DEFAULT_WIDTHS = (16, 32, 64)  # channels of each stage
MOST_WIDTHS, WIDEST, MOST_BLOCKS = 8, 4096, Limits(at_least=1, at_most=100)
STEMS = Limits(at_least=1, at_most=4)


def build_small(
    *,
    classes: int,
    shape: tuple[int, ...],
    seed: int,
    widths: Sequence[float] = DEFAULT_WIDTHS,
    blocks: int = 1,
    stem: int = 2,
    zero_gamma: bool = False,
    channels_last: bool = True,
) -> SmallResNet:
    """The network with initial weights drawn from `seed`, for images of any size and number of channels.

    `blocks` are those of each width, `stem` is the stride of the first convolution. With `zero_gamma` the last norm of
    every block starts at 0. `channels_last` changes no weight.
    """
    from torusrun.training.models.resnet import SmallResNet

    facts_small(DataFacts(1, 1, classes, shape), widths=widths, blocks=blocks, stem=stem)
    return SmallResNet(
        classes, shape[0], checked_widths(widths), seed,
        zero_gamma=zero_gamma, blocks=blocks, stem=stem, channels_last=channels_last,
    )  # fmt: skip


def facts_small(
    data: DataFacts,
    *,
    widths: Sequence[float] = DEFAULT_WIDTHS,
    blocks: int = 1,
    stem: int = 2,
    zero_gamma: bool = False,
    channels_last: bool = True,
) -> ModelFacts:
    """A convolution, `blocks` blocks of two for each width (all but the first halve the image), and a linear layer."""
    _image("resnet-small", data.shape)
    channels = checked_widths(widths)
    return _tensors(data, channels, blocks=_whole("blocks", blocks, MOST_BLOCKS), stem=_whole("stem", stem, STEMS))


def _tensors(data: DataFacts, widths: tuple[int, ...], *, blocks: int, stem: int) -> ModelFacts:
    channels, *image = data.shape
    image, inputs = [-(-side // stem) for side in image], widths[0]
    tensors = [*convolution(channels, inputs, 3, image[0] * image[1])]
    for stage, outputs in enumerate(widths):
        for block in range(blocks):
            halves = stage > 0 and block == 0
            image = _halved(image) if halves else image
            positions = image[0] * image[1]
            tensors += [*convolution(inputs, outputs, 3, positions), *convolution(outputs, outputs, 3, positions)]
            tensors += convolution(inputs, outputs, 1, positions) if halves or inputs != outputs else ()
            inputs = outputs
    return ModelFacts((*tensors, *linear(inputs, data.classes)), norms=_norms(tensors))


def _whole(name: str, value: object, limits: Limits) -> int:
    if type(value) is not int:
        raise ConfigError(f"{OPTIONS}.{name} must be a whole number, not {value!r}")
    return int(number(f"{OPTIONS}.{name}", value, limits))


def checked_widths(widths: Sequence[float]) -> tuple[int, ...]:
    """The channels of each stage. Raises ConfigError."""
    listed = isinstance(widths, (list, tuple)) and 1 <= len(widths) <= MOST_WIDTHS
    if not listed or not all(type(width) is int and 1 <= width <= WIDEST for width in widths):
        raise ConfigError(
            f"{OPTIONS}.widths: must be a list of 1 to {MOST_WIDTHS} whole numbers from 1 to {WIDEST}, "
            f"the channels of each block, not {widths!r}"
        )
    return tuple(map(int, widths))


def build_digits(
    *,
    classes: int,
    shape: tuple[int, ...],
    seed: int,
    zero_gamma: bool = True,
    widths: Sequence[float] = DEFAULT_WIDTHS,
) -> SmallResNet:
    """The network with initial weights drawn from `seed`, for images of one channel.

    With `zero_gamma` the last norm of every block starts at 0.
    """
    from torusrun.training.models.resnet import SmallResNet

    _check_digits(shape)
    return SmallResNet(classes, 1, checked_widths(widths), seed, zero_gamma=zero_gamma)


def facts_digits(data: DataFacts, *, zero_gamma: bool = True, widths: Sequence[float] = DEFAULT_WIDTHS) -> ModelFacts:
    """A convolution, a block of two convolutions per width (all but the first halve the image), and a linear layer."""
    _check_digits(data.shape)
    return _tensors(data, checked_widths(widths), blocks=1, stem=1)


def _check_digits(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] != 1:
        raise ConfigError(
            f"train.model: resnet-digits takes samples of shape (1, height, width), not {shape}; resnet18, resnet50 "
            "and resnet-small take images in colours"
        )
