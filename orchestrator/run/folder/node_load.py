"""The load of a node and the step times of its ranks. The wrapper of its first rank writes them every few seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.training.recipe.key import Limits

Amount = Annotated[float, Limits(at_least=0)]
Count = Annotated[int, Limits(at_least=0)]


@dataclass(frozen=True)
class GpuLoad:
    """A GPU; `busy` is the share of time in which a kernel ran on it. None if its driver does not report it."""

    number: Count
    busy: Amount | None = None
    memory_bytes: Amount | None = None
    memory_total_bytes: Amount | None = None
    power_w: Amount | None = None


@dataclass(frozen=True)
class RankSteps:
    """The steps of a rank since its last report. It reported `step` at `told_s`.

    `step_s` and `largest_s` are the mean and the longest time of one step. `waited` is the share of that time in which
    the rank waited for others; None if only a wait for a GPU could measure it. `read` is the share in which it waited
    for its samples; None if unknown. `recent_s` is the median time of a step
    without waiting over the newest `recent_steps` steps; None before there are enough.
    """

    rank: Count
    told_s: Amount
    step: Count
    step_s: Amount
    largest_s: Amount
    waited: Amount | None = None
    recent_s: Amount | None = None
    recent_steps: Count = 0
    read: Amount | None = None

    @property
    def computed_s(self) -> float | None:
        """The time of a step in which the rank did not wait for others."""
        return None if self.waited is None else self.step_s * max(1 - self.waited, 0.0)


@dataclass(frozen=True)
class NodeLoad:
    """A node at `at_s` by its own clock: means since the previous record, which is `every_s` older.

    `busy` is the share of time in which the `cores` of the job worked. Memory is the job's if the job has a limit, else
    the node's, without cached files.
    """

    at_s: Amount
    every_s: Amount
    cores: Count
    busy: Amount | None = None
    memory_bytes: Amount | None = None
    memory_total_bytes: Amount | None = None
    gpus: tuple[GpuLoad, ...] = ()
    ranks: tuple[RankSteps, ...] = ()

    def write(self, path: Path) -> None:
        """Write the record. Raises SiteError if that fails."""
        write_json(path, {"schema": 1, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> NodeLoad | None:
        """The record in `path`; None if there is none, or if it is damaged."""
        try:
            return read_record(path, cls)
        except SiteError:
            return None
