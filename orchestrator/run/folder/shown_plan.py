"""What the view of a run needs of its kept plans, and the forecast that was kept at its submission."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import damaged, read_object, required
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.keys.kinds import seconds
from torusrun.orchestrator.place.placement.grid import MOST_LEVELS
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.recipe.key import Items, Limits

SCHEMA = 1
LARGEST_RANKS = 10_000_000
LONGEST_TIMEOUT_S = 3600.0
FORECAST = "forecast"  # in the provenance
POLL_INTERVAL_S = 10.0  # if the plan does not say it, or cannot be read
Size = Annotated[int, Limits(at_least=1, at_most=LARGEST_RANKS)]
Levels = Annotated[tuple[Size, ...], Items(1, MOST_LEVELS)]


@dataclass(frozen=True)
class Planned:
    """The values of a plan that the view of a run needs; `grid` is None if the job chooses it."""

    run: str
    scheduler: str
    grid: tuple[int, ...] | None
    ranks: int
    command_timeout_s: float
    poll_interval_s: float
    site: str = ""  # its name, or the name of its file; '' if the plan does not have it
    notices: tuple[str, ...] = ()  # the moments of its notices
    command: bool = False  # whether the run is a user's program, which need not record steps
    pattern: bool = False  # whether the steps of a user's program are read from its log
    roles: bool = False  # whether it has services


def find(run: RunFolder, attempts: list[int]) -> tuple[Planned | None, str]:
    """(the plan of the newest of these attempts, or another plan that can be read; the damage in words).

    The first attempt has the run's plan; a later attempt may have another grid.
    """
    newest, *earlier = [run.attempt(number).plan for number in reversed(attempts)] or [run.plan]
    paths = (newest, run.plan, *earlier) if attempts and attempts[-1] > 1 else (run.plan, newest)
    why = ""
    for path in dict.fromkeys(paths):
        try:
            planned = read(path)
        except SiteError as error:
            why = why or str(error)
            continue
        if planned:
            return planned, f"{why}; {path} is read in its place" if why else ""
        why = why or f"{path}: it is missing"
    return None, f"{why}; `torusrun logs` and `torusrun collect` still work"


def read(path: Path) -> Planned | None:
    """The plan in `path`; None if it is missing. Raises SiteError if it is damaged or of another version."""
    kept = read_object(path)
    if kept is None:
        return None
    if kept.get("schema") != SCHEMA:
        raise SiteError(f"{path}: this is schema {str(kept.get('schema'))[:20]}; this torusrun reads schema {SCHEMA}")
    site: dict[str, Any] = required(path, kept, "site", dict)
    grid: list[Any] | str = required(path, kept, "grid", list, str)
    ranks: int = required(path, kept, "ranks", int)
    try:
        size: tuple[int, ...] | None = record_of(Levels, grid)
    except ValueError:
        size = None
    if grid != "auto" and (size is None or math.prod(size) != ranks):
        raise damaged(path, "its grid and its number of ranks do not fit together")
    spec = kept.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    return Planned(
        run=required(path, kept, "run", str),
        scheduler=required(path, site, "scheduler", str),
        grid=size,
        ranks=ranks,
        command_timeout_s=_seconds(path, site, "command_timeout"),
        poll_interval_s=_seconds(path, site, "poll_interval") if "poll_interval" in site else POLL_INTERVAL_S,
        site=site_name(spec.get("site")),
        notices=_moments(spec.get("notify"), site.get("notify")),
        command=bool(spec.get("command")),
        pattern=bool(isinstance(spec.get("metrics"), dict) and spec["metrics"].get("pattern")),
        roles=bool(spec.get("roles")),
    )


def _moments(of_run: object, of_site: object) -> tuple[str, ...]:
    """The moments of notices of a run and its site; () without a way."""
    both = [each if isinstance(each, dict) else {} for each in (of_run, of_site)]
    if not any(each.get(way) for each in both for way in ("command", "mail")):
        return ()
    named = next((each["at"] for each in both if isinstance(each.get("at"), list) and each["at"]), ["over"])
    return tuple(map(str, named))


def _seconds(path: Path, site: dict[str, Any], key: str) -> float:
    try:
        return min(seconds(required(path, site, key, str)), LONGEST_TIMEOUT_S)
    except ValueError as error:
        raise damaged(path, f"'{key}' {error}") from None


def site_name(named: object) -> str:
    """The site's name in the run; for a path, the name of the file without its suffix."""
    return Path(named).name.removesuffix(".yaml").removesuffix(".yml") if type(named) is str else ""


@dataclass(frozen=True)
class KeptForecast:
    """The predicted time of all steps and evaluations of a run without disturbances.

    `validation_s` is the part of the evaluations, `grid` the expected grid, and `assumptions` name the rates of the
    device and the links that it is made of. `bounds_s` are the bounds of `total_s` at 90 %, () if they are not known.
    """

    total_s: float
    validation_s: float
    steps: int
    images_per_s: float
    grid: tuple[int, ...]
    assumptions: tuple[str, ...] = ()
    bounds_s: tuple[float, ...] = ()

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return (self.total_s - self.validation_s) / self.steps


def read_forecast(run: RunFolder) -> KeptForecast | None:
    """The kept forecast of a run; None for an unknown command, or a damaged record."""
    try:
        forecast: KeptForecast = record_of(KeptForecast, (read_object(run.provenance) or {}).get(FORECAST))
    except (SiteError, ValueError):
        return None
    return forecast if forecast.total_s > 0 and forecast.steps > 0 else None
