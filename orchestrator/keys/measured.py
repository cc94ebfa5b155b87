"""What `torusrun calibrate` has measured: a file next to the site's file, whose values replace the site's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from torusrun.orchestrator.keys.kinds import COUNTS, LINE, MICROSECONDS, RANKS, RATE, SPREADS
from torusrun.training.recipe.key import key, needed

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.site import Site

LINKS = ("inter_node_bytes_per_s", "inter_node_latency_us", "intra_node_bytes_per_s", "intra_node_latency_us")


@dataclass(frozen=True)
class ModelTimes:
    """A model on one rank; 0 is not measured."""

    image_us: Annotated[float, MICROSECONDS] = key(0.0, "microseconds of an image")
    step_us: Annotated[float, MICROSECONDS] = key(0.0, "microseconds of a step besides its images")
    ranks: Annotated[int, RANKS] = key(1, "of the run that measured it; a step waits for the slowest of them")
    spread: Annotated[float, SPREADS] | None = key(
        None, "the standard deviation of a rank's step as a share of its mean; default: that of published runs"
    )
    batch: Annotated[int, COUNTS] = key(
        0, "the images of a rank at which it was measured, and at twice as many; others are doubtful"
    )
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


@dataclass(frozen=True)
class Measured:
    """Times of models and data sets, by name."""

    models: dict[Annotated[str, LINE], ModelTimes] = key(
        {}, "by model, as in 'resnet50, bf16, compiled': image_us, step_us, ranks, spread, batch, save_us, tensors"
    )
    data: dict[Annotated[str, LINE], DataTimes] = key({}, "by data set: decode_us, read_us, samples")
    links_error: Annotated[float, SPREADS] | None = key(None, "the largest relative error of the measured links")


@dataclass(frozen=True)
class SiteMeasurements:
    """The content of the file: link speeds as in a site's `node`, and times; None if not measured."""

    run: Annotated[str, LINE] = needed("where it was measured")
    inter_node_bytes_per_s: Annotated[float, RATE] | None = key(None, "", name="inter_node")
    inter_node_latency_us: Annotated[float, MICROSECONDS] | None = key(None, "")
    intra_node_bytes_per_s: Annotated[float, RATE] | None = key(None, "", name="intra_node")
    intra_node_latency_us: Annotated[float, MICROSECONDS] | None = key(None, "")
    measured: Measured = key(Measured(), "")

    def at(self, site: Site) -> Site:
        """The site with the measured values in place of its own."""
        links = {name: value for name in LINKS if (value := getattr(self, name)) is not None}
        old, new = site.measured, self.measured
        error = old.links_error if new.links_error is None else new.links_error
        measured = Measured({**old.models, **new.models}, {**old.data, **new.data}, error)
        return replace(site, node=replace(site.node, **links), measured=measured)
