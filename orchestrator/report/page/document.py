"""The HTML document about runs: a pure function of their facts."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from orchestrator.base.errors import UserError
from orchestrator.base.render.html import page
from orchestrator.base.version import __version__
from orchestrator.report.numbers import moment
from orchestrator.report.page.charts import charts, drawn
from orchestrator.report.page.facts import RunFacts
from orchestrator.report.page.part import part
from orchestrator.report.page.series import COLUMNS
from orchestrator.report.page.settings import differing
from orchestrator.report.page.time_use import MOST

MOST_RUNS = 12  # the colours and dashes of lines differ


def document(runs: Sequence[RunFacts]) -> str:
    """The page about these runs. Equal facts give an equal page. Raises UserError for more than MOST_RUNS."""
    if len(runs) > MOST_RUNS:
        raise UserError(f"a report overlays at most {MOST_RUNS} runs, and these are {len(runs)}: name fewer")
    letters = ascii_uppercase if len(runs) > 1 else [""]
    found = [drawn(letter, facts) for letter, facts in zip(letters, runs, strict=False)]
    parts = [part(run, number) for number, run in enumerate(found)]
    names = list(dict.fromkeys(figure.name for each in parts for figure in each.figures))
    compared = [
        (name, [next((f.value for f in each.figures if f.name == name), "–") for each in parts]) for name in names
    ]
    return page(
        "report/page.html.j2",
        title=parts[0].name if len(parts) == 1 else f"{len(parts)} runs compared",
        runs=parts,
        charts=charts(found),
        results=compared if len(parts) > 1 else [],
        differing=differing(runs) if len(parts) > 1 else [],
        made=moment(max(facts.now_s for facts in runs)),
        version=__version__,
        columns=COLUMNS,
        most_attempts=MOST,
    )
