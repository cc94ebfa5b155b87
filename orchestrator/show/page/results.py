"""The main figures of a run, each with what it was measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from torusrun.orchestrator.base.shown.numbers import duration, number, percent, thousands
from torusrun.orchestrator.show.account import forecast_line
from torusrun.orchestrator.show.page.charts import Drawn
from torusrun.orchestrator.show.page.series import Row
from torusrun.training.counted import counted


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its value, and what it is."""

    name: str
    value: str
    note: str


def results(run: Drawn) -> list[Figure]:
    """The known figures, in the order of display."""
    return [*_accuracy(run), *_loss(run), *_throughput(run), *_time(run)]


def _accuracy(run: Drawn) -> Iterator[Figure]:
    found = [row for row in run.series.evaluations if row.get("accuracy") is not None]
    if found:
        newest, best = found[-1], max(found, key=lambda row: row["accuracy"])
        of_best = "" if best["accuracy"] == newest["accuracy"] else f"; best {percent(best['accuracy'])}, {_at(best)}"
        top5 = f"; top 5 {percent(newest['top5'])}" if newest.get("top5") is not None else ""
        yield Figure("accuracy", percent(newest["accuracy"]), f"test set, {_at(newest)}{of_best}{top5}")


def _loss(run: Drawn) -> Iterator[Figure]:
    found = [row for row in run.series.steps if row.get("loss") is not None]
    if found:
        tested = [row for row in run.series.evaluations if row.get("test_loss") is not None]
        of_test = f"; test set {number(tested[-1]['test_loss'])}" if tested else ""
        yield Figure("loss", number(found[-1]["loss"]), f"training, {_at(found[-1])}{of_test}")


def _throughput(run: Drawn) -> Iterator[Figure]:
    found = [row["images_per_s"] for row in run.series.steps if row.get("images_per_s")]
    if found:
        rate = run.facts.predicted_images_per_s
        predicted = f"; predicted {thousands(rate)}" if rate is not None else ""
        note = f"median of {counted(len(found), 'report')}{predicted}"
        yield Figure("throughput", f"{thousands(median(found))} images/s", note)


def _time(run: Drawn) -> Iterator[Figure]:
    account = run.facts.account
    if account and account.total_s > 0:
        share = f", {account.since_submit:.1%} productive" if account.since_submit else ""
        until = "submission to end" if run.facts.view.state.over else "since submission"
        forecast = f"; {line}" if (line := forecast_line(account)) else ""
        yield Figure("time", duration(account.total_s), f"{until}{share}{forecast}")


def _at(row: Row) -> str:
    return f"step {thousands(row['step'])}"
