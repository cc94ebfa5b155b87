"""Measurements of `torusrun calibrate`: a file next to the site's file, whose values replace the site's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from torusrun.orchestrator.keys.kinds import COUNTS, LINE, MICROSECONDS, RANKS, RATE, SPREADS
from torusrun.orchestrator.keys.site import Site
from torusrun.training.recipe.key import key, needed

LINKS = ("inter_node_bytes_per_s", "inter_node_latency_us", "intra_node_bytes_per_s", "intra_node_latency_us")

BY_NAME = (
    "step_us", "image_us", "step_ranks", "step_spread", "step_batch", "save_us", "decode_us", "read_us", "tensors",
    "samples",
)  # fmt: skip


@dataclass(frozen=True)
class SiteMeasurements:
    """Link speeds as in a site's `node`, and compute times as in a site; None if not measured."""

    run: Annotated[str, LINE] = needed("where it was measured")
    inter_node_bytes_per_s: Annotated[float, RATE] | None = key(None, "", name="inter_node")
    inter_node_latency_us: Annotated[float, MICROSECONDS] | None = key(None, "")
    intra_node_bytes_per_s: Annotated[float, RATE] | None = key(None, "", name="intra_node")
    intra_node_latency_us: Annotated[float, MICROSECONDS] | None = key(None, "")
    step_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    image_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    step_ranks: dict[Annotated[str, LINE], Annotated[int, RANKS]] = key({}, "")
    step_spread: dict[Annotated[str, LINE], Annotated[float, SPREADS]] = key({}, "")
    links_error: Annotated[float, SPREADS] | None = key(None, "")
    save_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    decode_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    read_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")

    step_batch: dict[Annotated[str, LINE], Annotated[int, RANKS]] = key({}, "")
    tensors: dict[Annotated[str, LINE], tuple[Annotated[int, COUNTS], ...]] = key({}, "")
    samples: dict[Annotated[str, LINE], tuple[Annotated[int, COUNTS], ...]] = key({}, "")

    def at(self, site: Site) -> Site:
        """The site with the measured values in place of its own."""
        links = {name: value for name in LINKS if (value := getattr(self, name)) is not None}
        by_name: dict[str, Any] = {name: {**getattr(site, name), **getattr(self, name)} for name in BY_NAME}
        error = site.links_error if self.links_error is None else self.links_error
        return replace(site, node=replace(site.node, **links), links_error=error, **by_name)
