"""The best grids beside those of the record runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.network.cost.links import Network
from orchestrator.network.prediction import grids
from orchestrator.network.prediction.compute import Device
from orchestrator.network.prediction.grids import Compared
from orchestrator.network.prediction.text import ms, table


@dataclass(frozen=True)
class Grids:
    """Grids to be shown."""

    compared: list[Compared]

    @staticmethod
    def made(links: Network, device: Device, batch: int) -> Grids:
        return Grids(grids.compare(links, device, batch))

    def as_json(self) -> dict[str, Any]:
        return {"grids": [one.as_json() for one in self.compared]}

    def as_text(self) -> str:
        head = ["GPUs", "grid", "whose", "ring columns ms", "better columns ms", "exposed in a step ms"]
        cells = [
            [
                f"{c.gpus:,}",
                f"{c.grid[0]}x{c.grid[1]}",
                c.whose,
                ms(c.ring_columns_s),
                ms(c.best_columns_s),
                ms(c.exposed_s),
            ]
            for c in self.compared
        ]
        note = "XxY: X ranks in a row. Sony's grids, and which side of 48x72 is the row, are from memory."
        return table(head, cells) + "\n" + note
