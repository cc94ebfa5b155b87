"""The roles of an attempt as its folder shows them: their ranks and hosts, which services are ready, and since when."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.records import LATE, SILENT, WAITING, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.state.pace import short
from torusrun.training.counted import counted
from torusrun.training.recipe.near import did_you_mean

Kept = TypeVar("Kept")
MOST_RANKS = 64  # of a role, whose records are read
NOT_STARTED, STARTED, ENDED = "not started", "started", "ended"


@dataclass(frozen=True)
class Port:
    """The address and port of a role."""

    address: str
    port: int


@dataclass(frozen=True)
class Checked:
    """What the wrapper of a service's first rank recorded about it at `t`; `after_s` is what it took to be ready."""

    state: str
    t: float
    check: str = ""
    within_s: float = 0.0
    after_s: float | None = None


@dataclass(frozen=True)
class RankStart:
    """The last start of a rank (job/rank.py)."""

    started_s: float
    restarts: int = 0


@dataclass(frozen=True)
class RoleSeen:
    """A role of an attempt; `ranks` are the numbers of its ranks in the launch, the main role's first."""

    name: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    started: bool = False  # all of its ranks
    ended: bool = False  # all of its ranks
    checked: Checked | None = None  # of a service
    at: Port | None = None

    @property
    def state(self) -> str:
        """The state in one word, or two."""
        if self.ended:
            return ENDED
        return self.checked.state if self.checked else STARTED if self.started else NOT_STARTED

    def words(self, now_s: float) -> str:
        """The state at `now_s`, with what is waited for."""
        seen = self.checked
        if self.ended or not seen:
            return self.state
        if seen.state == WAITING:
            return f"waiting for {seen.check}, {short(max(now_s - seen.t, 0.0))} of {short(seen.within_s)}"
        if seen.state == SILENT:
            return f"silent: {seen.check} has not answered since {time.strftime('%H:%M', time.localtime(seen.t))}"
        if seen.after_s is not None:
            return f"{seen.state} after {short(seen.after_s)}"
        return f"{seen.state} {seen.check}".strip()

    def sentence(self, now_s: float) -> str:
        """The state at `now_s`, with ranks, hosts and port."""
        port = f", port {self.at.port}" if self.at else ""
        return f"{self.words(now_s)}; {counted(len(self.ranks), 'rank')} on {folded(self.hosts)}{port}"

    def as_json(self) -> dict[str, Any]:
        return {"state": self.state, **asdict(self)}


@dataclass(frozen=True)
class Span:
    """When a role began and ended; of its first ranks alone if it has many. None if unknown, or not yet."""

    role: RoleSeen
    started_s: float | None
    restarts: int
    ended_s: float | None
    how: str  # of its first bad end


def spans(attempt: Attempt, seen: Sequence[RoleSeen]) -> list[Span]:
    """The time of each of these roles of an attempt."""
    return [_span(attempt, role) for role in seen]


def _span(attempt: Attempt, role: RoleSeen) -> Span:
    starts, ends = list[RankStart](), list[RankEnd]()
    for rank in role.ranks[:MOST_RANKS]:
        if start := read(attempt.rank_start(rank), RankStart):
            starts.append(start)
        with contextlib.suppress(SiteError):
            ends.append(RankEnd.read(attempt.rank_end(rank)))
    bad = sorted((end for end in ends if end.failed), key=lambda end: end.ended_s)
    return Span(
        role,
        min((start.started_s for start in starts), default=None),
        sum(start.restarts for start in starts),
        max((end.ended_s for end in ends), default=None) if role.ended else None,
        bad[0].words if bad else "",
    )


def roles(attempt: Attempt) -> dict[str, RoleSeen]:
    """The roles of an attempt, the main role first; {} in a run without roles, or before its ranks are placed."""
    own: dict[str, list[tuple[int, str]]] = {}
    for (rank, host), name in attempt_folders.roles(attempt).items():
        own.setdefault(name, []).append((rank, host))
    if not own:
        return {}
    recorded = attempt_folders.recorded(attempt)
    main = next(iter(own))
    return {name: _role(attempt, name, slots, recorded, service=name != main) for name, slots in own.items()}


def _role(
    attempt: Attempt, name: str, slots: Sequence[tuple[int, str]], recorded: Mapping[str, set[int]], *, service: bool
) -> RoleSeen:
    ranks = tuple(rank for rank, _ in slots)
    return RoleSeen(
        name,
        ranks,
        tuple(dict.fromkeys(host for _, host in slots)),
        started=recorded["start"].issuperset(ranks),
        ended=recorded["end"].issuperset(ranks),
        checked=read(attempt.role_state(name), Checked) if service else None,
        at=read(attempt.role_place(name), Port),
    )


def read(path: Path, kind: type[Kept]) -> Kept | None:
    """The record in `path`; None if it is missing or damaged."""
    with contextlib.suppress(SiteError, ValueError):
        if kept := read_object(path):
            return cast(Kept, record_of(kind, kept))
    return None


def unready(seen: Mapping[str, RoleSeen], now_s: float) -> str:
    """The services that are not ready, or do not answer any more, in words; '' if all are ready."""
    services = [*seen.values()][1:]
    waits = [role for role in services if role.state in (WAITING, SILENT, LATE)]
    if not waits and services and not main_started(seen):
        waits = [role for role in services if role.state == NOT_STARTED][:1]
    return "; ".join(_sentence(role, now_s) for role in waits)


def main_started(seen: Mapping[str, RoleSeen]) -> bool:
    """Whether all ranks of the main role have started; True in a run without roles."""
    return all(role.started for role in [*seen.values()][:1])


def _sentence(role: RoleSeen, now_s: float) -> str:
    return f"{role.name}{' is' if role.state == SILENT else ':'} {role.words(now_s)}"


def labels(attempt: Attempt) -> dict[int, str]:
    """'rollout 0' for each rank, by its number in the launch; {} in a run without roles."""
    counts: dict[str, int] = {}
    names: dict[int, str] = {}
    for (rank, _), name in attempt_folders.roles(attempt).items():
        names[rank] = f"{name} {counts.get(name, 0)}"
        counts[name] = counts.get(name, 0) + 1
    return names


def rank_of(run_id: str, attempt: Attempt, role: str, number: int) -> int:
    """The number in the launch of rank `number` of a role; '' is the main role, or a run without roles.

    Raises UserError if the attempt has no such role, or the role no such rank.
    """
    seen = roles(attempt)
    if not role and not seen:
        return number
    names = ", ".join(seen)
    if role and role not in seen:
        none = "it has no roles, or its ranks are not placed yet"
        has = f"its roles are {names}{did_you_mean(role, seen)}" if seen else none
        raise UserError(f"{run_id} has no role {plain(role)!r}: {has}")
    chosen = seen[role] if role else next(iter(seen.values()))
    if not 0 <= number < len(chosen.ranks):
        more = "" if role else f"; --role names another role: {names}"
        raise UserError(
            f"{run_id} has no rank {number} of {chosen.name}: its ranks are 0 to {len(chosen.ranks) - 1}{more}"
        )
    return chosen.ranks[number]


def port_of(attempt: Attempt, role: str) -> int:
    """The port of a role. Raises UserError if it is not known yet."""
    at = roles(attempt)[role].at
    if at is None:
        raise UserError(f"the role {role!r} has no port yet: its host has not recorded it; try again in a moment")
    return at.port
