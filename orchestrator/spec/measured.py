"""Measurements of `torusrun calibrate`: a file next to the site's file, whose values replace the site's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from torusrun.orchestrator.spec.kinds import LINE, MICROSECONDS, RANKS, RATE, SPREADS
from torusrun.orchestrator.spec.site import Site
from torusrun.training.recipe.key import key, needed

LINKS = ("inter_node_bytes_per_s", "inter_node_latency_us", "intra_node_bytes_per_s", "intra_node_latency_us")


@dataclass(frozen=True)
class SiteMeasurements:
    """Link speeds as in a site's `node`, and compute times as in a site; None if not measured."""

    run: Annotated[str, LINE] = needed("where it was measured")
    inter_node_bytes_per_s: Annotated[float, RATE] | None = key(None, "", name="inter_node", former="network")
    inter_node_latency_us: Annotated[float, MICROSECONDS] | None = key(None, "", former="network_latency_us")
    intra_node_bytes_per_s: Annotated[float, RATE] | None = key(None, "", name="intra_node", former="inside")
    intra_node_latency_us: Annotated[float, MICROSECONDS] | None = key(None, "", former="inside_latency_us")
    step_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    image_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    step_ranks: dict[Annotated[str, LINE], Annotated[int, RANKS]] = key({}, "")
    step_spread: dict[Annotated[str, LINE], Annotated[float, SPREADS]] = key({}, "")
    links_error: Annotated[float, SPREADS] | None = key(None, "")
    save_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    decode_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")
    read_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = key({}, "")

    def at(self, site: Site) -> Site:
        links = {name: value for name in LINKS if (value := getattr(self, name)) is not None}
        return replace(
            site,
            node=replace(site.node, **links),
            step_us={**site.step_us, **self.step_us},
            image_us={**site.image_us, **self.image_us},
            step_ranks={**site.step_ranks, **self.step_ranks},
            step_spread={**site.step_spread, **self.step_spread},
            links_error=site.links_error if self.links_error is None else self.links_error,
            save_us={**site.save_us, **self.save_us},
            decode_us={**site.decode_us, **self.decode_us},
            read_us={**site.read_us, **self.read_us},
        )
