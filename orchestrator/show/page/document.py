"""The HTML document about runs: a pure function of their facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.render.html import page
from torusrun.orchestrator.base.shown.numbers import moment
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.show.page.charts import charts, drawn
from torusrun.orchestrator.show.page.comparison import best_first, comparison
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.orchestrator.show.page.part import part
from torusrun.orchestrator.show.page.series import COLUMNS
from torusrun.orchestrator.show.page.time_use import MOST

MOST_DRAWN = 12  # the colours and dashes of lines differ
MOST_RUNS = 200


def refuse_many(runs: int) -> None:
    """Raise UserError for more than MOST_RUNS runs."""
    if runs > MOST_RUNS:
        raise UserError(f"a report compares at most {MOST_RUNS} runs, and these are {runs}: name fewer")


def document(runs: Sequence[RunFacts]) -> str:
    """The page about these runs. Of more than MOST_DRAWN the best are drawn, and all are compared.

    Equal facts give an equal page. Raises UserError for more than MOST_RUNS.
    """
    refuse_many(len(runs))
    found, by = [drawn(facts, alone=len(runs) == 1) for facts in runs], ""
    if len(found) > MOST_DRAWN:
        found, by = best_first(found)
    if len(found) > 1:
        found = [replace(run, letter=ascii_uppercase[n] if n < MOST_DRAWN else "") for n, run in enumerate(found)]
    shown, compared = found[:MOST_DRAWN], comparison(found)
    parts = [part(run, number) for number, run in enumerate(shown)]
    return page(
        "report/page.html.j2",
        title=compared.title if compared else parts[0].name,
        runs=parts,
        charts=charts(shown),
        compared=compared,
        best_by=by,
        made=moment(max(facts.now_s for facts in runs)),
        version=__version__,
        columns=COLUMNS,
        most_attempts=MOST,
    )
