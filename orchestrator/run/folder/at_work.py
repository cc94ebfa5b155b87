"""What wrappers and supervisor record while the ranks are at work: load, steps, slow ranks, signs of life."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.private import READABLE, open_regular
from torusrun.orchestrator.base.typed import read_record
from torusrun.training.recipe.key import Limits, Pattern
from torusrun.training.reporting.heartbeat import DOING

BEAT_BYTES = 128  # of its file, whatever it says
HOST_PULSE_S = 2.0  # at least, between the signs of life that one rank of each host gives
HOSTS_PER_S = 50  # that give a sign
TIMES_USUAL = 1.2  # a slow rank computes at least so many times as long as the others
MOST_SLOW = 8  # ranks or hosts in a record
Amount = Annotated[float, Limits(at_least=0)]
Count = Annotated[int, Limits(at_least=0)]
R = TypeVar("R", bound="_Kept")


@dataclass(frozen=True)
class _Kept:
    """A record in a file of its own, which is written again and again."""

    def write(self, path: Path) -> None:
        """Write the record. Raises SiteError if that fails."""
        write_json(path, {"schema": 1, **asdict(self)})

    @classmethod
    def read(cls: type[R], path: Path) -> R | None:
        """The record in `path`; None if it is missing or damaged."""
        try:
            return read_record(path, cls)
        except SiteError:
            return None


@dataclass(frozen=True)
class Beat(_Kept):
    """The training is at `step`, and takes steps, evaluates or saves (training/reporting/heartbeat.py)."""

    doing: Annotated[str, Pattern(f"one of {', '.join(DOING)}", "|".join(DOING))]
    step: Count

    def write(self, path: Path) -> None:
        """Write the record over the former record, without new space on a disk that may be full. Errors are ignored."""
        with contextlib.suppress(OSError):
            descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT, READABLE)
            try:
                os.pwrite(descriptor, json.dumps(asdict(self)).ljust(BEAT_BYTES - 1).encode() + b"\n", 0)
            finally:
                os.close(descriptor)


def host_pulse_s(hosts: int) -> float:
    """The seconds between two signs of life of a host, if the job has so many hosts."""
    return max(HOST_PULSE_S, hosts / HOSTS_PER_S)


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

    `step_s` and `largest_s` are the mean and the longest time of a step. `waited` is the share of that time in which
    the rank waited for others; None if only a wait for a GPU could measure it. `read` is the share in which it waited
    for its samples; None if unknown. `recent_s` is the median time of a step without waiting over the newest
    `recent_steps` steps; None before they are enough.
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
class NodeLoad(_Kept):
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


@dataclass(frozen=True)
class Slow(_Kept):
    """Ranks on `hosts` that computed `times` as long as the median of the others, over their last `steps` steps.

    `whole` says that they are all ranks of their hosts, and that each host has several.
    """

    ranks: tuple[Count, ...]
    hosts: tuple[str, ...]
    whole: bool
    times: Amount
    steps: Count

    @property
    def words(self) -> str:
        """'slow: rank 3 (node2) computes 1.4 times as long as the median over 60 steps; the others wait'."""
        ranks, hosts = f"rank{'s' if len(self.ranks) > 1 else ''} {_listed(self.ranks)}", _listed(self.hosts)
        who = f"{hosts} ({ranks})" if self.whole else f"{ranks} ({hosts})"
        verb = "compute" if len(self.hosts if self.whole else self.ranks) > 1 else "computes"
        over = f"{self.times:.1f} times as long as the median over {self.steps} steps"
        return f"slow: {who} {verb} {over}; the others wait"


def slow_ranks(steps: Mapping[str, Sequence[RankSteps]]) -> Slow | None:
    """The slow ranks, from the reports of the ranks of each host; None if no rank is slow.

    Each rank is compared with the median of the others. Ranks without a report over enough steps are left out.
    """
    known = {rank.rank: rank.recent_s for ranks in steps.values() for rank in ranks if rank.recent_s is not None}
    ratios = {rank: _ratio(rank, known) for rank in known}
    slow = sorted((rank for rank in known if ratios[rank] >= TIMES_USUAL), key=lambda rank: -ratios[rank])
    if not slow or len(slow) > len(known) / 2:
        return None
    ranks_on = {host: {rank.rank for rank in ranks} for host, ranks in steps.items()}
    hosts = [host for host, ranks in ranks_on.items() if ranks & set(slow)]
    whole = all(len(ranks_on[host]) > 1 and ranks_on[host] <= set(slow) for host in hosts)
    over = min(rank.recent_steps for ranks in steps.values() for rank in ranks if rank.rank in slow)
    return Slow(tuple(slow[:MOST_SLOW]), tuple(hosts[:MOST_SLOW]), whole, round(ratios[slow[0]], 2), over)


def _ratio(rank: int, known: Mapping[int, float]) -> float:
    """The time of a rank by the median of the others; 0 without others, or if they take no time."""
    from statistics import median

    others = [time_s for other, time_s in known.items() if other != rank]
    usual_s = median(others) if others else 0.0
    return known[rank] / usual_s if usual_s > 0 else 0.0


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
