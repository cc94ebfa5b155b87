"""Ranks and hosts that compute longer than the others, as their supervisor found and recorded them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.run.folder.node_load import RankSteps
from torusrun.training.recipe.key import Limits

TIMES_USUAL = 1.2
MOST = 8  # ranks or hosts in a record


@dataclass(frozen=True)
class Slow:
    """Ranks on `hosts` that computed `times` as long as the median of the others, over their last `steps` steps.

    `whole` says that they are all ranks of their hosts, and that each host has several.
    """

    ranks: tuple[Annotated[int, Limits(at_least=0)], ...]
    hosts: tuple[str, ...]
    whole: bool
    times: Annotated[float, Limits(at_least=0)]
    steps: Annotated[int, Limits(at_least=0)]

    @property
    def words(self) -> str:
        """'slow: rank 3 (node2) computes 1.4 times as long as the median over 60 steps; the others wait'."""
        ranks, hosts = f"rank{'s' if len(self.ranks) > 1 else ''} {_listed(self.ranks)}", _listed(self.hosts)
        who = f"{hosts} ({ranks})" if self.whole else f"{ranks} ({hosts})"
        verb = "compute" if len(self.hosts if self.whole else self.ranks) > 1 else "computes"
        over = f"{self.times:.1f} times as long as the median over {self.steps} steps"
        return f"slow: {who} {verb} {over}; the others wait"

    def write(self, path: Path) -> None:
        """Write the record. Raises SiteError if that fails."""
        write_json(path, {"schema": 1, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> Slow | None:
        """The record in `path`; None if there is none, or if it is damaged."""
        try:
            return read_record(path, cls)
        except SiteError:
            return None


def slow(steps: Mapping[str, Sequence[RankSteps]]) -> Slow | None:
    """The slow ranks, from the reports of the ranks of each host; None if there are none.

    Each rank is compared with the median of the others. Ranks without a report over enough steps are left out.
    """
    known = {rank.rank: rank.recent_s for ranks in steps.values() for rank in ranks if rank.recent_s is not None}
    ratios = {rank: _ratio(rank, known) for rank in known}
    found = sorted((rank for rank in known if ratios[rank] >= TIMES_USUAL), key=lambda rank: -ratios[rank])
    if not found or len(found) > len(known) / 2:
        return None
    there = {host: {rank.rank for rank in ranks} for host, ranks in steps.items()}
    hosts = [host for host, ranks in there.items() if ranks & set(found)]
    whole = all(len(there[host]) > 1 and there[host] <= set(found) for host in hosts)
    over = min(rank.recent_steps for ranks in steps.values() for rank in ranks if rank.rank in found)
    return Slow(tuple(found[:MOST]), tuple(hosts[:MOST]), whole, round(ratios[found[0]], 2), over)


def _ratio(rank: int, known: Mapping[int, float]) -> float:
    """The time of a rank by the median of the others; 0 without others, or if they take no time."""
    others = [time_s for other, time_s in known.items() if other != rank]
    usual_s = median(others) if others else 0.0
    return known[rank] / usual_s if usual_s > 0 else 0.0


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
