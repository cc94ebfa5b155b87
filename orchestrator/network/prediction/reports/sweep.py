"""All schemes over the number of GPUs: a table, a plot, and where each scheme breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.network.cost.links import Network
from orchestrator.network.prediction import plot, sweep
from orchestrator.network.prediction.compute import Device
from orchestrator.network.prediction.sweep import BYTES, Size
from orchestrator.network.prediction.text import ms, table
from training.counted import counted

NAMES = {
    "ring": "ring",
    "tree": "tree",
    "halving": "halving",
    "leaders": "leaders",
    "torus": "torus",
    "levels": "3 levels",
}


@dataclass(frozen=True)
class Sweep:
    """Sizes to be shown."""

    sizes: list[Size]
    device: str
    batch: int
    most: int

    @staticmethod
    def made(links: Network, device: Device, batch: int, first: int, last: int) -> Sweep:
        counts = sweep.sizes(first, last, links.levels[0].members)
        return Sweep(sweep.sweep(links, device, batch, counts), device.name, batch, links.ranks)

    def as_json(self) -> dict[str, Any]:
        return {
            "gradient_bytes": BYTES,
            "device": self.device,
            "local_batch": self.batch,
            "sizes": [size.as_json() for size in self.sizes],
            "breaks_at_gpus": sweep.breaks(self.sizes),
        }

    def as_text(self) -> str:
        head = ["GPUs", *NAMES.values(), "bound", "best grid", "best levels", "least", "images/s", "efficiency"]
        return "\n".join(
            [
                f"one all-reduce of {BYTES / 1e6:.1f} MB, ms; a step of {self.batch} images per {self.device}",
                table(head, [_cells(size) for size in self.sizes]),
                "",
                plot.characters(self._curves()),
                "",
                "twice the best or more, from",
                *[f"  {NAMES[name]:9}{_at(gpus)}" for name, gpus in sweep.breaks(self.sizes).items()],
                *self._beyond(),
            ]
        )

    def as_svg(self) -> str:
        return plot.svg(self._curves())

    def _curves(self) -> plot.Curves:
        named = {word: [(s.gpus, s.cost_s(name)) for s in self.sizes] for name, word in NAMES.items()}
        return {**named, "bound": [(s.gpus, s.bound_s) for s in self.sizes if s.bound_s > 0]}

    def _beyond(self) -> list[str]:
        if self.sizes[-1].gpus <= self.most:
            return []
        return [f"beyond {self.most:,} GPUs the network is thought larger, with the same links"]


def _at(gpus: int | None) -> str:
    return "nowhere here" if gpus is None else counted(gpus, "GPU")


def _cells(size: Size) -> list[str]:
    costs = [ms(size.cost_s(name)) for name in NAMES]
    shapes = [size.shape(name) for name in ("torus", "levels")]
    rate = f"{size.images_per_s:,.0f}"
    return [
        f"{size.gpus:,}",
        *costs,
        ms(size.bound_s),
        *shapes,
        NAMES[size.best.name],
        rate,
        f"{100 * size.efficiency:.1f} %",
    ]
