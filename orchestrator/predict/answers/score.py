"""The user's own runs compared with their forecasts: the errors of each part by site, or the parts of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.shown.numbers import duration, ms
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.predict.answers.predicted import Predicted
from torusrun.orchestrator.predict.model.own_interval import FEWEST, Errors, errors, own_interval
from torusrun.orchestrator.predict.score import PARTS, STEP, RunScore, ScoredPart
from torusrun.training.counted import counted

NONE = "no run that is over has a forecast: torusrun keeps one at submit, if it knows a rate (torusrun calibrate)"


@dataclass(frozen=True)
class OfSite:
    """The errors of a part at a site. Of `bounded` runs with an interval, `inside` were within it."""

    site: str
    part: str
    errors: Errors
    bounded: int
    inside: int


@dataclass(frozen=True)
class OfRun:
    """A part of a run."""

    run: str
    site: str
    name: str
    part: ScoredPart


def by_site(scores: Sequence[RunScore]) -> Predicted:
    """The errors of each part at each site, and the sites' own intervals for the time of a step."""
    sites = sorted({score.site for score in scores})
    ratios = {site: _ratios([score for score in scores if score.site == site]) for site in sites}
    rows = [_of_site(site, name, found, scores) for site in sites for name, found in ratios[site].items()]
    table = Table(SITES, rows)
    steps = {site: ratios[site].get(STEP, []) for site in sites}
    record = {"rows": table.as_json(), "intervals": [_interval(site, steps[site]) for site in sites]}
    lines = [*table.lines(), *(_in_words(site, steps[site]) for site in sites)]
    return Predicted(record, lines if rows else [NONE])


def by_run(scores: Sequence[RunScore]) -> Predicted:
    """All parts of each run."""
    rows = [OfRun(score.run, score.site, name, part) for score in scores for name, part in score.parts.items()]
    table = Table(RUNS, rows)
    return Predicted({"rows": table.as_json()}, table.lines() if rows else [NONE])


def _of_site(site: str, name: str, ratios: Sequence[float], scores: Sequence[RunScore]) -> OfSite:
    parts = [score.parts[name] for score in scores if score.site == site and name in score.parts]
    known = [part.is_inside for part in parts if part.is_inside is not None]
    return OfSite(site, name, errors(ratios), len(known), sum(known))


def _ratios(scores: Sequence[RunScore]) -> Mapping[str, list[float]]:
    """The ratios of each part that was predicted in some run."""
    found = {name: [score.parts[name].ratio for score in scores if name in score.parts] for name in PARTS}
    return {name: known for name, ratios in found.items() if (known := [one for one in ratios if one is not None])}


def _interval(site: str, ratios: Sequence[float]) -> dict[str, Any]:
    low, high = own_interval(ratios) or (None, None)
    return {"site": site, "part": STEP, "runs": len(ratios), "fewest": FEWEST, "low": low, "high": high}


def _in_words(site: str, ratios: Sequence[float]) -> str:
    name = plain(site) or "no site"
    if interval := own_interval(ratios):
        low, high = interval
        times = f"{low:.3f} to {high:.3f} times the forecast"
        return f"{name}: the steps of the next run take {times}, with 90 % probability ({counted(len(ratios), 'run')})"
    return f"{name}: its own interval needs {FEWEST} runs with a step; it has {len(ratios)}"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}"


def _size(share: float) -> str:
    return f"{100 * share:.1f}"


def _time(value_s: float) -> str:
    """A short time in milliseconds, any other as a duration."""
    return f"{ms(value_s)} ms" if value_s < 1 else duration(value_s)


SITES: tuple[Column[OfSite], ...] = (
    Column("SITE", lambda row: plain(row.site) or None, key="site", right=False),
    Column("PART", lambda row: row.part, key="part", right=False),
    Column("RUNS", lambda row: row.errors.runs, key="runs", right=True),
    Column("MEDIAN %", lambda row: row.errors.median, _signed, key="median_error", right=True),
    Column("P95 %", lambda row: row.errors.p95, _size, key="p95_error", right=True),
    Column("WORST %", lambda row: row.errors.worst, _size, key="worst_error", right=True),
    Column("INSIDE", lambda row: f"{row.inside} of {row.bounded}" if row.bounded else None, right=True),
    Column(None, lambda row: row.bounded, key="with_interval"),
    Column(None, lambda row: row.inside, key="inside"),
)
RUNS: tuple[Column[OfRun], ...] = (
    Column("RUN", lambda row: plain(row.run), key="run", right=False),
    Column("SITE", lambda row: plain(row.site) or None, key="site", right=False),
    Column("PART", lambda row: row.name, key="part", right=False),
    Column("FORECAST", lambda row: row.part.forecast_s, _time, key="forecast_s", right=True),
    Column("TOOK", lambda row: row.part.actual_s, _time, key="actual_s", right=True),
    Column(None, lambda row: row.part.low_s, key="low_s"),
    Column(None, lambda row: row.part.high_s, key="high_s"),
    Column(
        "ERROR %", lambda row: None if row.part.ratio is None else row.part.ratio - 1, _signed, key="error", right=True
    ),
)
