"""The published records, compared with the model's results.

Every row is predicted without its own number. What the model has from published runs, the spread of compute among ranks
and how far the rate of another program misleads, comes from the other rows (leave one out).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import yaml

from benchmarks.published import schemes
from torusrun.orchestrator.forecast import constants, doubts, epochs
from torusrun.orchestrator.forecast.constants import Value, network
from torusrun.orchestrator.forecast.device import Device, device, measured
from torusrun.orchestrator.forecast.interval import Interval, around, largest, student
from torusrun.orchestrator.forecast.step import EXACT, Grouping, Step, Stragglers, expected_maximum, step
from torusrun.orchestrator.place.cost.all_reduce import Cost

CLOSE_PERCENT = 5.0

Role = Literal["baseline", "unpredicted", "close", "off", "outside"]


@dataclass(frozen=True)
class Rate:
    """A predicted throughput in images/s, and what widens its interval most.

    No number of the row itself is in it: `sigma`, the spread of compute among the ranks, is what the other rows imply.
    """

    images_per_s: float
    interval: Interval
    sigma: float
    widened_by: str


@dataclass(frozen=True)
class PublishedRun:
    """One published throughput, and the model's from a smaller run; `predicted` is None for a baseline."""

    name: str
    who: str
    gpus: int
    published: Value
    baseline: str | None
    predicted: Rate | None
    same_program: bool  # the baseline is the same program on the same nodes, over InfiniBand
    not_modelled: str
    why: str

    @property
    def error_percent(self) -> float | None:
        return None if self.predicted is None else 100 * (self.predicted.images_per_s / self.published.value - 1)

    @property
    def role(self) -> Role:
        """`off` is farther than 5 % from the published number, which is inside the interval."""
        if self.predicted is None:
            return "unpredicted" if self.why else "baseline"
        if not self.predicted.interval.holds(self.published.value):
            return "outside"
        return "close" if abs(self.error_percent or 0.0) <= CLOSE_PERCENT else "off"


@dataclass(frozen=True)
class Duration:
    """One published time to train, and the time of its epochs at the predicted and at the published rate."""

    name: str
    epochs: int
    published: Value
    predicted_s: float | None
    interval_s: Interval | None
    at_published_rate_s: float

    @property
    def unexplained_s(self) -> float:
        return self.published.value - self.at_published_rate_s


@dataclass(frozen=True)
class RowStep:
    """A row that has a baseline: its step without stragglers, and what its published step implies."""

    device: Device
    batch: float
    gpus: int
    step: Step
    published_s: float
    same_program: bool
    replayed: bool

    @property
    def sigma(self) -> float:
        """The spread with which the model would give the published step."""
        excess = expected_maximum(self.gpus) - expected_maximum(self.device.ranks)
        return (self.published_s - self.step.total_s) / (self.step.compute_s * excess)

    def compute_factor(self, sigma: float) -> float:
        """How many times as long compute would take in the published step, with this spread."""
        waited = self.with_spread(sigma, Interval(sigma, sigma))
        return 1 + (self.published_s - waited.total_s) / self.step.compute_s

    def with_spread(self, sigma: float, bounds: Interval) -> Step:
        return replace(self.step, stragglers=Stragglers(sigma, bounds, self.gpus, self.device.ranks))


@lru_cache
def written_table() -> dict[str, Any]:
    """What the papers say, as published.yaml has it."""
    loaded: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
    return loaded


def rows() -> list[PublishedRun]:
    """All rows, in the order of the file."""
    compared = comparable()
    return [_row(name, written, compared) for name, written in written_table()["rows"].items()]


def durations() -> list[Duration]:
    """The times to train of rows whose epochs are known."""
    found = {row.name: row for row in rows()}
    return [_duration(name, w, found[w["row"]]) for name, w in written_table()["times"].items()]


def spread(compared: Mapping[str, RowStep], replayed: bool, left_out: str = "") -> tuple[float, Interval]:
    """The mean spread, with the interval of the next one, by the rows whose baseline is the same program.

    A program that replays its steps as CUDA graphs differs from one that launches each kernel. A row may imply less
    than 0, if something else makes it faster.
    """
    same = {name: one for name, one in compared.items() if one.same_program and name != left_out}
    implied = [one.sigma for one in same.values() if one.replayed == replayed]
    low, high = of_next_around_mean(implied)
    return fmean(implied), Interval(max(0.0, low), high)


def compute_factors(compared: Mapping[str, RowStep], sigma: float, left_out: str = "") -> list[float]:
    """How far the rate misleads in the rows whose baseline is another program, or whose links are others."""
    others = ((name, one) for name, one in compared.items() if not one.same_program)
    return [one.compute_factor(sigma) for name, one in others if name != left_out]


def comparable() -> dict[str, RowStep]:
    """The rows that have a baseline, by name."""
    written = written_table()["rows"]
    return {name: _compared(row) for name, row in written.items() if "baseline" in row}


def rate(name: str, compared: Mapping[str, RowStep]) -> Rate:
    """The prediction of a row by what the other rows imply."""
    own = compared[name]
    sigma, bounds = spread(compared, own.replayed, name)
    one = own.with_spread(sigma, bounds)
    compute = doubts.same_program()
    if not own.same_program:
        compute = doubts.other_program(of_next(compute_factors(compared, sigma, name)))
    found = doubts.of_step(own.device, own.batch, one, compute, doubts.links_factor())
    images = own.gpus * own.batch
    interval = around(one.total_s, found).rate_of(images)
    return Rate(images / one.total_s, interval, sigma, largest(found).why)


def _duration(name: str, written: Mapping[str, Any], row: PublishedRun) -> Duration:
    images, predicted = written["epochs"] * epochs.images(), row.predicted
    return Duration(
        name,
        written["epochs"],
        constants.value(written["published_s"]),
        images / predicted.images_per_s if predicted else None,
        predicted.interval.rate_of(images) if predicted else None,
        images / row.published.value,
    )


def _row(name: str, written: Mapping[str, Any], compared: Mapping[str, RowStep]) -> PublishedRun:
    return PublishedRun(
        name=name,
        who=written["who"],
        gpus=written["gpus"],
        published=constants.value(written["images_per_s"]),
        baseline=written.get("baseline"),
        predicted=rate(name, compared) if name in compared else None,
        same_program=written.get("same_program", False),
        not_modelled=written.get("not_modelled", ""),
        why=written.get("why", ""),
    )


def _compared(written: Mapping[str, Any]) -> RowStep:
    batch, gpus = constants.number(written["local_batch"]), written["gpus"]
    computing = _device(written["baseline"])
    published_s = gpus * batch / constants.number(written["images_per_s"])
    one = _step(written, computing, batch)
    same_program, replayed = written.get("same_program", False), written.get("replayed", False)
    return RowStep(computing, batch, gpus, one, published_s, same_program, replayed)


def _device(baseline: str) -> Device:
    """The device of a row: a shipped one, or from a smaller row's step less its exposed communication."""
    if baseline.startswith("gpu:"):
        return device(baseline.removeprefix("gpu:"))
    written = written_table()["rows"][baseline]
    batch, gpus = constants.number(written["local_batch"]), written["gpus"]
    step_s = batch * gpus / constants.number(written["images_per_s"])
    fixed_s = device(written["device"]).fixed_s if "device" in written else 0.0
    found = measured(baseline, batch, step_s, fixed_s, gpus)
    for _ in range(5):  # the exposed part and the length of backward depend on each other: this converges
        found = measured(baseline, batch, step_s - _step(written, found, batch).exposed_s, fixed_s, gpus)
    return found


def _step(written: Mapping[str, Any], computing: Device, batch: float) -> Step:
    return step(
        computing,
        batch,
        _cost_s(written["network"], written["gpus"], written["scheme"]),
        bytes_per_parameter=written.get("bytes_per_parameter", 2),
        grouping=_grouping(written.get("groups")),
        overlap=written.get("overlap", True),
        links_factor=doubts.links_factor(),
    )


def _grouping(written: list[Any] | None) -> Grouping:
    return (written[0], written[1]) if written else EXACT


@lru_cache
def _cost_s(named: str, gpus: int, scheme: str) -> Cost:
    """The cost of an all-reduce, which keeps what it has computed: a row's five steps have the same sizes."""
    links = network(named).holding(gpus)
    if scheme in schemes.FLAT:
        return lru_cache(maxsize=None)(schemes.FLAT[scheme](links))
    x, y = map(int, scheme.split("x"))
    return lru_cache(maxsize=None)(schemes.torus(links, (x, y)))


def of_next(values: Sequence[float]) -> Interval:
    """The 90 % prediction interval of one more value of the same kind, from at least two values above 0.

    Source: as `of_next_around_mean`, on the logarithms.
    """
    low, high = of_next_around_mean([log(value) for value in values])
    return Interval(exp(low), exp(high))


def of_next_around_mean(values: Sequence[float]) -> Interval:
    """The 90 % prediction interval of one more value, from at least two, which may be below 0.

    Source: Student's t, mean -+ t s sqrt(1 + 1/n) with n - 1 degrees of freedom (a standard formula).
    """
    reach = student(len(values) - 1) * stdev(values) * sqrt(1 + 1 / len(values))
    return Interval(fmean(values) - reach, fmean(values) + reach)
