"""The published records beside the model's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.network.cost.all_reduce import Cost
from orchestrator.network.prediction import constants, epochs, schemes
from orchestrator.network.prediction.compute import Device, device, measured
from orchestrator.network.prediction.networks import network
from orchestrator.network.prediction.records import Duration, PublishedRun
from orchestrator.network.prediction.step import EXACT, Grouping, Step, step


def rows() -> list[PublishedRun]:
    """All rows, in the order of the file."""
    return [_row(name, written) for name, written in constants.table("published")["rows"].items()]


def durations() -> list[Duration]:
    """The times to train of rows whose epochs are known."""
    found = {row.name: row for row in rows()}
    return [_duration(name, w, found[w["row"]]) for name, w in constants.table("published")["times"].items()]


def _duration(name: str, written: Mapping[str, Any], row: PublishedRun) -> Duration:
    images = written["epochs"] * epochs.images()
    predicted = images / row.predicted if row.predicted else None
    published = constants.value(written["published_s"])
    return Duration(name, written["epochs"], published, predicted, images / row.published.value)


def _row(name: str, written: Mapping[str, Any]) -> PublishedRun:
    predicted = None
    batch = constants.number(written["local_batch"])
    if "baseline" in written:
        predicted = written["gpus"] * batch / _step(written, _device(written["baseline"]), batch).total_s
    return PublishedRun(
        name=name,
        who=written["who"],
        gpus=written["gpus"],
        published=constants.value(written["images_per_s"]),
        baseline=written.get("baseline"),
        predicted=predicted,
        images_per_step=written["gpus"] * batch,
        same_program=written.get("same_program", False),
        not_modelled=written.get("not_modelled", ""),
        why=written.get("why", ""),
    )


def _device(baseline: str) -> Device:
    """The device of a row: a shipped one, or from a smaller row's step less its exposed communication."""
    if baseline.startswith("gpu:"):
        return device(baseline.removeprefix("gpu:"))
    written = constants.table("published")["rows"][baseline]
    batch = constants.number(written["local_batch"])
    step_s = batch * written["gpus"] / constants.number(written["images_per_s"])
    fixed_s = device(written["device"]).fixed_s if "device" in written else 0.0
    found = measured(baseline, batch, step_s, fixed_s)
    for _ in range(5):  # the exposed part and the length of backward depend on each other: this converges
        found = measured(baseline, batch, step_s - _step(written, found, batch).exposed_s, fixed_s)
    return found


def _step(written: Mapping[str, Any], computing: Device, batch: float) -> Step:
    return step(
        computing,
        batch,
        _cost_s(written),
        bytes_per_parameter=written.get("bytes_per_parameter", 2),
        grouping=_grouping(written.get("groups")),
        overlap=written.get("overlap", True),
    )


def _grouping(written: list[Any] | None) -> Grouping:
    return (written[0], written[1]) if written else EXACT


def _cost_s(written: Mapping[str, Any]) -> Cost:
    links = network(written["network"]).holding(written["gpus"])
    word = written["scheme"]
    if word in schemes.FLAT:
        return schemes.FLAT[word](links)
    x, y = map(int, word.split("x"))
    return schemes.torus(links, (x, y))
