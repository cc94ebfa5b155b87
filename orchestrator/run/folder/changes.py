"""The changes that an attempt makes to its run's plan: time limit, nodes, grid, and excluded hosts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, cast

from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.run.folder.shown_plan import Levels
from torusrun.training.recipe.key import Limits


@dataclass(frozen=True)
class Changes:
    """None means unchanged. A `grid` of () means auto. Excluded hosts are added to those of earlier attempts."""

    time_s: Annotated[float, Limits(above=0)] | None = None
    nodes: Annotated[int, Limits(at_least=1, at_most=1_000_000)] | None = None
    grid: Levels | None = None
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
        changed = {key: value for key, value in asdict(self).items() if value}
        return {**changed, "grid": "auto"} if self.grid == () else changed

    @classmethod
    def from_json(cls, value: object) -> Changes:
        """The changes in an object of `as_json`. Raises ValueError for any other value."""
        if not isinstance(value, dict) or value.get("grid") != "auto":
            return cast(Changes, record_of(cls, value, str, "changes"))
        return replace(cls.from_json({**value, "grid": None}), grid=())
