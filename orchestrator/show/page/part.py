"""What the page says about one run, as texts and tables in the order of the page; and several runs in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from torusrun.orchestrator.base.shown.numbers import duration, moment, ms, number, percent, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.folder.at_work import RankSteps
from torusrun.orchestrator.run.folder.events import Ended
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.attempts import AttemptFacts
from torusrun.orchestrator.run.state.roles import Span, spans
from torusrun.orchestrator.show.listing import ATTEMPTS, forecast_line, time_lines
from torusrun.orchestrator.show.page.charts import Drawn, Row
from torusrun.orchestrator.show.page.facts import RunFacts, environment, overview
from torusrun.orchestrator.show.page.settings import MISSING, changes, differing, settings
from torusrun.orchestrator.show.screen.printed import figures, remark
from torusrun.training.counted import counted

MOST_ERROR_LINES = 12
MOST_ATTEMPTS = 20
MOST_RANKS = 64  # of more, the slowest of each host


class Cells(NamedTuple):
    """A table as texts. `right` says which columns are on the right."""

    titles: list[str]
    right: list[bool]
    rows: list[list[str]]


class Figure(NamedTuple):
    """A main figure of a run, and what it was measured on."""

    name: str
    value: str
    note: str


def part(run: Drawn, number: int) -> dict[str, Any]:
    """The values of a run in the template. `number` is its colour; `letter` is '' on a page about one run."""
    facts, end, account = run.facts, run.facts.explanation, run.facts.account
    ranks, faster_hosts = _ranks(facts)
    return {
        "letter": run.letter,
        "number": number,
        "name": plain(facts.view.run),
        "state": facts.view.state.value,
        "sentence": facts.shown(_sentence(facts)),
        "why": f"{end.cause}: {end.meaning}" if end and end.cause not in ("", "done") else "",
        "error_of": end.error_of if end else "",
        "error": [facts.shown(line) for line in end.error[-MOST_ERROR_LINES:]] if end and facts.plan else [],
        "to_do": [facts.shown(line) for line in end.to_do] if end else [],
        "facts": [(name, facts.shown(text)) for name, text in overview(facts) if text],
        "figures": results(run),
        "attempts": _attempts(facts),
        "roles": _roles(facts),
        "earlier_attempts": max(len(account.attempts) - MOST_ATTEMPTS, 0) if account else 0,
        "time": [*time_lines(account)] if account else [],
        "ranks": ranks,
        "faster_hosts": faster_hosts,
        "slow": facts.shown(facts.slow.words if facts.slow else ""),
        "map": facts.outlook.map.text().splitlines() if facts.outlook else [],
        "settings": settings(facts),
        "changes": changes(facts),
        "environment": environment(facts),
        "damaged": [facts.shown(text) for text in facts.view.damaged],
    }


def _sentence(facts: RunFacts) -> str:
    """How the run ended, or its progress: the words of `status` and `watch`."""
    view = facts.view
    if view.state.over:
        return view.reason
    return ", ".join(filter(None, (*figures(view).values(), remark(view, ""))))


def _cells(table: Table[Any], shown: Callable[[str], str]) -> Cells:
    titles, rows, right = table.cells()
    return Cells(titles, right, [[shown(text) for text in row] for row in rows])


def _attempts(facts: RunFacts) -> Cells | None:
    """The newest attempts as `status --long` shows them, each with the reason of its end; None if none is known."""
    if not facts.account or not facts.account.attempts:
        return None
    reasons = {event.attempt: event.reason for event in facts.events if isinstance(event, Ended)}
    why: Column[AttemptFacts] = Column("WHY", lambda row: reasons.get(row.attempt), right=False)
    return _cells(Table((*ATTEMPTS, why), facts.account.attempts[-MOST_ATTEMPTS:]), facts.shown)


ROLES: tuple[Column[Span], ...] = (
    Column("ROLE", lambda span: span.role.name, right=False),
    Column("RANKS", lambda span: len(span.role.ranks)),
    Column("HOSTS", lambda span: folded(span.role.hosts), right=False),
    Column("STARTED", lambda span: span.started_s, moment, right=False),
    Column("READY AFTER", lambda span: span.role.checked and span.role.checked.after_s, duration),
    Column("RESTARTS", lambda span: span.restarts or None),
    Column("ENDED", lambda span: span.ended_s, moment, right=False),
    Column("STATE", lambda span: span.how or span.role.state, right=False),
)


def _roles(facts: RunFacts) -> Cells | None:
    """The roles of the newest attempt; None for a run without."""
    attempt = RunFolder(Path(facts.view.folder)).attempt(facts.view.attempt)
    return _cells(Table(ROLES, spans(attempt, facts.roles)), facts.shown) if facts.roles else None


RANKS: tuple[Column[tuple[str, RankSteps]], ...] = (
    Column("RANK", lambda row: row[1].rank),
    Column("HOST", lambda row: row[0], right=False),
    Column("AT STEP", lambda row: row[1].step),
    Column("STEP MS", lambda row: row[1].step_s, ms),
    Column("COMPUTE MS", lambda row: row[1].computed_s, ms),
    Column("WAIT", lambda row: row[1].waited, "{:.0%}".format),
)


def _ranks(facts: RunFacts) -> tuple[Cells | None, int]:
    """(The step times of the ranks by their last reports, the hosts without a row); None if no rank reported any.

    Of many ranks they are those of the slowest rank of each host, the slowest first.
    """
    known = [(node.host, rank) for node in facts.nodes if node.load for rank in node.load.ranks]
    if not known:
        return None, 0
    if len(known) > MOST_RANKS:
        slowest = [(node.host, node.slowest) for node in facts.nodes if node.slowest]
        known = sorted(slowest, key=lambda row: -(row[1].computed_s or row[1].step_s))
    return _cells(Table(RANKS, known[:MOST_RANKS]), facts.shown), len(known[MOST_RANKS:])


def results(run: Drawn) -> list[Figure]:
    """The known figures, in the order of display."""
    return [*_accuracy(run), *_loss(run), *_throughput(run), *_time(run)]


def _accuracy(run: Drawn) -> Iterator[Figure]:
    rows = [row for row in run.series.evaluations if row.get("accuracy") is not None]
    if rows:
        newest, best = rows[-1], max(rows, key=lambda row: row["accuracy"])
        of_best = "" if best["accuracy"] == newest["accuracy"] else f"; best {percent(best['accuracy'])}, {_at(best)}"
        top5 = f"; top 5 {percent(newest['top5'])}" if newest.get("top5") is not None else ""
        yield Figure("accuracy", percent(newest["accuracy"]), f"test set, {_at(newest)}{of_best}{top5}")


def _loss(run: Drawn) -> Iterator[Figure]:
    rows = [row for row in run.series.steps if row.get("loss") is not None]
    if rows:
        tested = [row for row in run.series.evaluations if row.get("test_loss") is not None]
        of_test = f"; test set {number(tested[-1]['test_loss'])}" if tested else ""
        yield Figure("loss", number(rows[-1]["loss"]), f"training, {_at(rows[-1])}{of_test}")


def _throughput(run: Drawn) -> Iterator[Figure]:
    rates = [row["images_per_s"] for row in run.series.steps if row.get("images_per_s")]
    if rates:
        kept = run.facts.account.forecast if run.facts.account else None
        predicted = f"; predicted at submit {thousands(kept.images_per_s)}" if kept else ""
        yield Figure(
            "throughput",
            f"{thousands(median(rates))} images/s",
            f"median of {counted(len(rates), 'report')}{predicted}",
        )


def _time(run: Drawn) -> Iterator[Figure]:
    account = run.facts.account
    if account and account.total_s > 0:
        share = f", {account.since_submit:.1%} productive" if account.since_submit else ""
        until = "submission to end" if run.facts.view.state.over else "since submission"
        forecast = f"; {line}" if (line := forecast_line(account)) else ""
        yield Figure("time", duration(account.total_s), f"{until}{share}{forecast}")


def _at(row: Row) -> str:
    return f"step {thousands(row['step'])}"


def comparison(runs: Sequence[Drawn]) -> tuple[str, Cells]:
    """(The title of a page about these runs, the table of their results and of the settings in which they differ)."""
    sweep = _sweep(runs)
    of_run = [{figure.name: figure.value for figure in results(run)} for run in runs]
    unequal = differing([run.facts for run in runs])
    names = [f"{run.letter} {run.facts.view.run.removeprefix(f'{sweep}.')}".strip() for run in runs]
    columns: list[Column[int]] = [
        Column("member" if sweep else "run", names.__getitem__, right=False),
        Column("state", lambda n: runs[n].facts.view.state.value, right=False),
        *(
            Column[int](name, [known.get(name) for known in of_run].__getitem__, right=True)
            for name in dict.fromkeys(name for known in of_run for name in known)
        ),
        *(Column[int](key, values.__getitem__, right=True) for key, values in unequal),
    ]
    title = f"{plain(sweep)}: {len(runs)} members" if sweep else f"{len(runs)} runs compared"
    return title, _cells(Table(columns, range(len(runs)), empty=MISSING), plain)


def _sweep(runs: Sequence[Drawn]) -> str:
    """The id of the sweep of which all these runs are members, or ''."""
    names = [run.facts.view.run.rpartition(".") for run in runs]
    sweeps = {sweep for sweep, _, number in names if number.isdecimal()}
    return sweeps.pop() if len(sweeps) == 1 and all(number.isdecimal() for *_, number in names) else ""


LARGER_IS_BETTER = {"accuracy": True, "loss": False}  # the first that a run has reported counts


def best_first(runs: Sequence[Drawn]) -> tuple[list[Drawn], str]:
    """(The runs by their last accuracy, or by their last loss; 'accuracy', 'loss' or ''). Others keep their order."""
    for metric, larger in LARGER_IS_BETTER.items():
        known = [(value, run) for run in runs if (value := _last(run, metric)) is not None]
        if known:
            known.sort(key=lambda pair: pair[0], reverse=larger)
            return [*(run for _, run in known), *(run for run in runs if _last(run, metric) is None)], metric
    return list(runs), ""


def _last(run: Drawn, metric: str) -> float | None:
    """The newest value of accuracy or loss."""
    rows = run.series.evaluations if metric == "accuracy" else run.series.steps
    return next((float(row[metric]) for row in reversed(rows) if row.get(metric) is not None), None)
