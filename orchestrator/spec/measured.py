"""Measurements of `torusrun calibrate`: a file beside the site's file, whose values replace the site's."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from orchestrator.spec.about import about
from orchestrator.spec.kinds import LINE, MICROSECONDS, RATE
from orchestrator.spec.site import Site

LINKS = ("inter_node_bytes_per_s", "inter_node_latency_us", "intra_node_bytes_per_s", "intra_node_latency_us")


@dataclass(frozen=True)
class SiteMeasurements:
    """Link speeds as in a site's `node`, and compute times as in a site; None if not measured."""

    run: Annotated[str, LINE] = field(metadata=about("where it was measured"))
    inter_node_bytes_per_s: Annotated[float, RATE] | None = field(
        default=None, metadata=about("", key="inter_node", former="network")
    )
    inter_node_latency_us: Annotated[float, MICROSECONDS] | None = field(
        default=None, metadata=about("", former="network_latency_us")
    )
    intra_node_bytes_per_s: Annotated[float, RATE] | None = field(
        default=None, metadata=about("", key="intra_node", former="inside")
    )
    intra_node_latency_us: Annotated[float, MICROSECONDS] | None = field(
        default=None, metadata=about("", former="inside_latency_us")
    )
    step_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = field(
        default_factory=dict, metadata=about("")
    )
    image_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = field(
        default_factory=dict, metadata=about("")
    )

    def at(self, site: Site) -> Site:
        """The site with the measured values."""
        links = {name: value for name in LINKS if (value := getattr(self, name)) is not None}
        return replace(
            site,
            node=replace(site.node, **links),
            step_us={**site.step_us, **self.step_us},
            image_us={**site.image_us, **self.image_us},
        )
