"""What `torusrun calibrate` has measured of models and data sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torusrun.orchestrator.keys.kinds import COUNTS, LINE, MICROSECONDS, RANKS, SIZES_BYTES, SPREADS
from torusrun.training.recipe.key import key


@dataclass(frozen=True)
class ModelTimes:
    """A model on one rank; 0 is not measured."""

    image_us: Annotated[float, MICROSECONDS] = key(0.0, "microseconds of an image")
    step_us: Annotated[float, MICROSECONDS] = key(0.0, "microseconds of a step besides its images")
    ranks: Annotated[int, RANKS] = key(1, "of the run that measured it; a step waits for the slowest of them")
    spread: Annotated[float, SPREADS] | None = key(
        None, "the standard deviation of a rank's step / its mean; default: that of published runs"
    )
    batch: Annotated[int, COUNTS] = key(0, "the images of a rank at which it was measured")
    save_us: Annotated[float, MICROSECONDS] = key(0.0, "microseconds that all ranks wait for a checkpoint")
    tensors: tuple[Annotated[int, COUNTS], ...] = key(
        (), "of a model of your own: the parameters of each tensor, in their order"
    )


@dataclass(frozen=True)
class DataTimes:
    """A data set; 0 is not measured."""

    decode_us: Annotated[float, MICROSECONDS] = key(
        0.0, "microseconds until a rank has decoded an image that the system's cache holds"
    )
    read_us: Annotated[float, MICROSECONDS] = key(
        0.0, "microseconds that a rank's image takes longer from the file system than from the cache"
    )
    samples: tuple[Annotated[int, COUNTS], ...] = key(
        (), "of a data set of your own: the samples for training and for tests"
    )


BOTH = Annotated[float, SIZES_BYTES]  # in a row: bytes, and the microseconds of both


@dataclass(frozen=True)
class Measured:
    """Times of models and data sets, by name, and of all-reduces, by what they run over."""

    models: dict[Annotated[str, LINE], ModelTimes] = key(
        {}, "by model, as in 'resnet50, bf16, compiled': image_us, step_us, ranks, spread, batch, save_us, tensors"
    )
    data: dict[Annotated[str, LINE], DataTimes] = key({}, "by data set: decode_us, read_us, samples")
    all_reduce: dict[Annotated[str, LINE], tuple[tuple[BOTH, BOTH, BOTH], ...]] = key(
        {},
        "for train.sync.all_reduce: auto, by grid, nodes, library and wire ('8x4 on 4 nodes, nccl, fp32'): rows of "
        "[bytes, microseconds by the library, by the torus]",
    )
    links_error: Annotated[float, SPREADS] | None = key(None, "the largest relative error of the measured links")
