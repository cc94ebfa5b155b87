"""The published records beside what the model says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.predict import constants, epochs
from orchestrator.predict.compute import Device, device, measured
from orchestrator.predict.constants import Value
from orchestrator.predict.networks import network
from orchestrator.predict.schemes import Scheme, double_tree, flat_ring, grid, halving_doubling, leaders, nccl
from orchestrator.predict.step import EXACT, Grouping, Step, step

CLOSE_PERCENT = 5.0
NAMED = {"ring": flat_ring, "tree": double_tree, "halving": halving_doubling, "leaders": leaders, "nccl": nccl}


@dataclass(frozen=True)
class Row:
    """One published throughput, and the model's from a smaller one; `predicted` is None for a baseline."""

    name: str
    who: str
    gpus: int
    published: Value
    baseline: str | None
    predicted: float | None
    not_modelled: str
    why: str

    @property
    def error_percent(self) -> float | None:
        return None if self.predicted is None else 100 * (self.predicted / self.published.value - 1)

    @property
    def role(self) -> str:
        """baseline, close, out, or unpredicted."""
        if self.predicted is None:
            return "unpredicted" if self.why else "baseline"
        return "close" if abs(self.error_percent or 0.0) <= CLOSE_PERCENT else "out"


@dataclass(frozen=True)
class Duration:
    """One published time to train, beside its epochs at the predicted and at the published rate."""

    name: str
    epochs: int
    published: Value
    predicted_s: float | None
    at_published_rate_s: float

    @property
    def unexplained_s(self) -> float:
        return self.published.value - self.at_published_rate_s


def rows() -> list[Row]:
    """All rows, in the order of the file."""
    return [_row(name, written) for name, written in constants.table("published")["rows"].items()]


def durations() -> list[Duration]:
    """The times to train of rows whose epochs are known."""
    found = {row.name: row for row in rows()}
    return [_duration(name, w, found[w["row"]]) for name, w in constants.table("published")["times"].items()]


def _duration(name: str, written: Mapping[str, Any], row: Row) -> Duration:
    images = written["epochs"] * epochs.images()
    predicted = images / row.predicted if row.predicted else None
    published = constants.value(written["published_s"])
    return Duration(name, written["epochs"], published, predicted, images / row.published.value)


def _row(name: str, written: Mapping[str, Any]) -> Row:
    predicted = None
    if "baseline" in written:
        batch = constants.number(written["local_batch"])
        predicted = written["gpus"] * batch / _step(written, _device(written["baseline"]), batch).total_s
    return Row(
        name,
        written["who"],
        written["gpus"],
        constants.value(written["images_per_s"]),
        written.get("baseline"),
        predicted,
        written.get("not_modelled", ""),
        written.get("why", ""),
    )


def _device(baseline: str) -> Device:
    """What computes in a row: a device that ships, or a smaller row's step less its exposed communication."""
    if baseline.startswith("gpu:"):
        return device(baseline.removeprefix("gpu:"))
    written = constants.table("published")["rows"][baseline]
    batch = constants.number(written["local_batch"])
    step_s = batch * written["gpus"] / constants.number(written["images_per_s"])
    fixed_s = device(written["device"]).fixed_s if "device" in written else 0.0
    found = measured(baseline, batch, step_s, fixed_s)
    for _ in range(5):  # the exposed part depends on the length of backward, and that on the exposed part: converges
        found = measured(baseline, batch, step_s - _step(written, found, batch).exposed_s, fixed_s)
    return found


def _step(written: Mapping[str, Any], computing: Device, batch: float) -> Step:
    return step(
        computing,
        batch,
        _scheme(written).cost_s,
        bytes_per_parameter=written.get("bytes_per_parameter", 2),
        grouping=_grouping(written.get("groups")),
        overlap=written.get("overlap", True),
    )


def _grouping(written: list[Any] | None) -> Grouping:
    return (written[0], written[1]) if written else EXACT


def _scheme(written: Mapping[str, Any]) -> Scheme:
    links = network(written["network"]).holding(written["gpus"])
    word = written["scheme"]
    if word in NAMED:
        return NAMED[word](links)
    x, y = map(int, word.split("x"))
    return grid(links, x, y)
