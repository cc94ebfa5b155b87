"""All schemes over the number of GPUs: a table, curves, and where each scheme breaks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestrator.network.cost.links import Network
from orchestrator.network.prediction import sweep
from orchestrator.network.prediction.compute import Device
from orchestrator.network.prediction.sweep import BYTES, Size
from orchestrator.report.curve import Axis, Curve
from orchestrator.report.numbers import ms, thousands
from orchestrator.report.table import Column, Table
from training.counted import counted

NAMES = {name: name for name in ("ring", "tree", "halving", "leaders", "torus")} | {"levels": "3 levels"}
WIDTH, HEIGHT = 68, 18  # of the curves
COLUMNS: tuple[Column[Size], ...] = (
    Column("GPUs", lambda size: size.gpus, thousands, key="gpus"),
    *(Column(word, partial(Size.cost_s, name=name), ms) for name, word in NAMES.items()),
    Column("bound", lambda size: size.bound_s, ms, key="bound_s"),
    Column("best grid", lambda size: size.shape("torus")),
    Column("best levels", lambda size: size.shape("levels")),
    Column("least", lambda size: NAMES[size.best.name]),
    Column("images/s", lambda size: size.images_per_s, thousands, key="images_per_s"),
    Column("efficiency", lambda size: size.efficiency, lambda share: f"{100 * share:.1f} %", key="efficiency"),
    Column(None, lambda size: {str(scheme): scheme.cost_s(BYTES) for scheme in size.schemes}, key="all_reduce_s"),
    Column(None, lambda size: str(size.best), key="best"),
)


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

    @property
    def table(self) -> Table[Size]:
        return Table(COLUMNS, self.sizes)

    @property
    def curve(self) -> Curve:
        """The time of every scheme, both axes logarithmic."""
        named = {word: [(s.gpus, s.cost_s(name)) for s in self.sizes] for name, word in NAMES.items()}
        bound = [(size.gpus, size.bound_s) for size in self.sizes if size.bound_s > 0]
        gpus, time = Axis(lambda count: counted(round(count), "GPU"), log=True), Axis(lambda s: f"{ms(s)} ms", log=True)
        return Curve({**named, "bound": bound}, gpus, time)

    def as_json(self) -> dict[str, Any]:
        return {
            "gradient_bytes": BYTES,
            "device": self.device,
            "local_batch": self.batch,
            "sizes": self.table.as_json(),
            "breaks_at_gpus": sweep.breaks(self.sizes),
        }

    def as_text(self) -> str:
        curve = self.curve
        return "\n".join(
            [
                f"one all-reduce of {BYTES / 1e6:.1f} MB, ms; a step of {self.batch} images per {self.device}",
                *self.table.lines(),
                "",
                *curve.framed(curve.letters(WIDTH, HEIGHT), "|"),
                curve.foot("", WIDTH + 1),
                ", ".join([*(f"{name[0]} {name}" for name in curve.curves), "* several"]),
                "",
                "twice the best or more, from",
                *[f"  {NAMES[name]:9}{_at(gpus)}" for name, gpus in sweep.breaks(self.sizes).items()],
                *self._beyond(),
            ]
        )

    def _beyond(self) -> list[str]:
        if self.sizes[-1].gpus <= self.most:
            return []
        return [f"beyond {self.most:,} GPUs the network is thought larger, with the same links"]


def _at(gpus: int | None) -> str:
    return "nowhere here" if gpus is None else counted(gpus, "GPU")
