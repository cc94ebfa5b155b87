"""The residual networks for photographs, described for the login node: without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from training.models.layers import STEM_WIDTH, WIDTHS, Version, convolution, linear
from training.recipe.facts import DataFacts, ModelFacts, Tensor
from training.recipe.reading import ConfigError

if TYPE_CHECKING:
    from training.models.resnet import ResNet


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
        zero_gamma: bool = False,
        channels_last: bool = False,
    ) -> ResNet:
        """The network with initial weights drawn from `seed`, for images of any size and number of channels.

        Raises ConfigError for samples that are not images, and for an unknown version.
        """
        from training.models.resnet import ResNet

        return ResNet(
            self.blocks,
            bottleneck=self.bottleneck,
            classes=classes,
            channels=self._image(shape)[0],
            seed=seed,
            version=self._known(version),
            zero_gamma=zero_gamma,
            channels_last=channels_last,
        )

    def facts(
        self, data: DataFacts, *, version: str = "v1.5", zero_gamma: bool = False, channels_last: bool = False
    ) -> ModelFacts:
        """The tensors, with the multiply-adds for one of the data set's images. Raises ConfigError as `build` does."""
        channels, *image = self._image(data.shape)
        early = self._known(version) == "v1"
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

    def _image(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != 3:
            raise ConfigError(
                f"train.model: {self.name} takes samples of shape (channels, height, width), not {tuple(shape)}"
            )
        return shape

    def _known(self, version: str) -> Version:
        for known in get_args(Version):
            if version == known:
                return known  # type: ignore[no-any-return]
        raise ConfigError(
            f"train.model.options.version: must be one of {', '.join(get_args(Version))}, not {version!r}"
        )


def _halved(image: list[int]) -> list[int]:
    """A height and a width after a stride of 2."""
    return [-(-pixels // 2) for pixels in image]


def _norms(tensors: list[Tensor]) -> tuple[int, ...]:
    """The channels of each batch norm. Its scale and its shift are the tensors without multiply-adds."""
    return tuple(tensor.parameters for tensor in tensors if not tensor.work)[::2]
