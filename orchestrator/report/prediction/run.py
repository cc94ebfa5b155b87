"""One run, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.network.prediction.forecast import Forecast
from orchestrator.report.numbers import dims, duration, ms, thousands
from training.counted import counted


@dataclass(frozen=True)
class StretchTime:
    """The time of an attempt that trains on so many nodes from epoch `begins` until epoch `ends`."""

    nodes: int
    begins: float
    ends: float
    total_s: float


@dataclass(frozen=True)
class RunForecast:
    """A forecast to be shown. `parts` are the attempts of a run whose phases want different numbers of nodes."""

    forecast: Forecast
    parts: Sequence[StretchTime] = ()

    def as_json(self) -> dict[str, Any]:
        return {**self.forecast.as_json(), **({"parts": [asdict(part) for part in self.parts]} if self.parts else {})}

    def as_text(self) -> str:
        rows = "\n".join(f"{name:14}{text}" for name, text in self._rows().items())
        return rows + "\n" + "\n".join(f"assumed: {line}" for line in self.forecast.assumptions)

    def _rows(self) -> dict[str, str]:
        f = self.forecast
        first = ", ".join(map(str, f.groups[:8])) + (", ..." if len(f.groups) > 8 else "")
        rows = {
            "grid": f"{dims(f.grid)}, all-reduce of all gradients {ms(f.all_reduce_s)} ms; the best grid"
            + (f" is {dims(f.best_grid)}, {ms(f.best_grid_all_reduce_s)} ms" if f.best_grid != f.grid else ""),
            "step": f"{ms(f.step_s)} ms = forward {ms(f.forward_s)} + backward {ms(f.backward_s)} + fixed "
            f"{ms(f.fixed_s)} + exposed communication {ms(f.exposed_s)}"
            + (f" + batch norms' exchange {ms(f.norms_s)}" if f.norms_s else ""),
            "groups": f"{len(f.groups)}, of {first} tensors",
            "throughput": f"{thousands(f.images_per_s)} images/s on {counted(f.ranks, 'rank')}",
            "time": f"{duration(f.total_s)}: {counted(f.steps, 'step')} {duration(f.train_s)}, "
            f"validation {duration(f.validation_s)}",
            "node-hours": f"{f.node_hours:.4g}",
        }
        if len(f.phases) > 1:
            parts = (f"{part.steps} of {counted(part.batch, 'image')} in {ms(part.step_s)} ms" for part in f.phases)
            rows["phases"] = "; ".join(parts)
        if f.epochs_to_target and f.to_target_s:
            how = "at this batch with LARS (MLPerf's reference)"
            rows["to 75.9 %"] = f"{f.epochs_to_target:.1f} epochs {how}, {duration(f.to_target_s)}"
        for number, part in enumerate(self.parts, 1):
            where = f"epochs {part.begins:g} to {part.ends:g} on {counted(part.nodes, 'node')}"
            rows[f"attempt {number}"] = f"{duration(part.total_s)}: {where}"
        if self.parts:
            together = duration(sum(part.total_s for part in self.parts))
            rows["together"] = f"{together}; the lines above are for all epochs on the nodes of attempt 1"
        return rows
