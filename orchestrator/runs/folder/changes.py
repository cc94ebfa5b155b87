"""The changes that an attempt makes to its run's plan: time limit, nodes, grid, and excluded hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.runs.folder.shown_plan import as_grid

MOST_NODES = 1_000_000
LONGEST_TIME_S = 1e10


@dataclass(frozen=True)
class Changes:
    """None means unchanged. A `grid` of () means auto. Excluded hosts are added to those of earlier attempts."""

    time_s: float | None = None
    nodes: int | None = None
    grid: tuple[int, ...] | None = None
    exclude: tuple[str, ...] = ()

    def then(self, later: Changes) -> Changes:
        """These changes followed by `later` ones: the later value counts, and excluded hosts stay excluded."""
        return Changes(
            self.time_s if later.time_s is None else later.time_s,
            self.nodes if later.nodes is None else later.nodes,
            self.grid if later.grid is None else later.grid,
            tuple(dict.fromkeys((*self.exclude, *later.exclude))),
        )

    def as_json(self) -> dict[str, Any]:
        """An object with the changed values only."""
        grid = self.grid if self.grid is None else list(self.grid) or "auto"
        kept = {"time_s": self.time_s, "nodes": self.nodes, "grid": grid}
        return {
            **{key: value for key, value in kept.items() if value is not None},
            **({"exclude": list(self.exclude)} if self.exclude else {}),
        }

    @classmethod
    def from_json(cls, value: object) -> Changes:
        """The changes in an object of `as_json`. Raises ValueError for any other value."""
        if type(value) is not dict:
            raise ValueError("these are no changes")
        time_s, nodes, grid, exclude = (value.get(key) for key in ("time_s", "nodes", "grid", "exclude"))
        if time_s is not None and (type(time_s) not in (int, float) or not 0 < time_s < LONGEST_TIME_S):
            raise ValueError("'time_s' is no time limit")
        if nodes is not None and (type(nodes) is not int or not 0 < nodes <= MOST_NODES):
            raise ValueError("'nodes' is no number of nodes")
        size = () if grid == "auto" else as_grid(grid)
        if grid is not None and size is None:
            raise ValueError("'grid' is no grid")
        if exclude is not None and (type(exclude) is not list or not all(type(host) is str for host in exclude)):
            raise ValueError("'exclude' is no list of hosts")
        return cls(None if time_s is None else float(time_s), nodes, size, tuple(exclude or ()))
