"""One run as the page shows it: every part as text and pictures, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass

from torusrun.orchestrator.base.templates import Markup
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.show import map_svg
from torusrun.orchestrator.show.page.charts import Drawn
from torusrun.orchestrator.show.page.facts import RunFacts, environment, overview
from torusrun.orchestrator.show.page.results import Figure, results
from torusrun.orchestrator.show.page.settings import changes, settings
from torusrun.orchestrator.show.page.time_use import RankTimes, TimeUse, rank_times, time_use
from torusrun.orchestrator.show.progress_text import figures, remark

MOST_ERROR_LINES = 12


@dataclass(frozen=True)
class RunPart:
    """A run on the page. `number` is its colour; `letter` is '' on a page about one run."""

    letter: str
    number: int
    name: str
    state: str
    sentence: str
    why: str
    error_of: str
    error: list[str]
    to_do: list[str]
    facts: list[tuple[str, str]]
    figures: list[Figure]
    time: TimeUse | None
    ranks: RankTimes | None
    map: Markup | None
    settings: list[tuple[str, str]]
    changes: list[str]
    environment: list[tuple[str, str]]
    damaged: list[str]


def part(run: Drawn, number: int) -> RunPart:
    facts = run.facts
    end = facts.explanation
    ended_well = not end or end.cause in ("", "done")
    return RunPart(
        letter=run.letter,
        number=number,
        name=plain(facts.view.run),
        state=facts.view.state.value,
        sentence=facts.shown(_sentence(facts)),
        why="" if ended_well or not end else f"{end.cause}: {end.meaning}",
        error_of=end.error_of if end else "",
        error=[facts.shown(line) for line in end.error[-MOST_ERROR_LINES:]] if end and facts.plan else [],
        to_do=[facts.shown(line) for line in end.to_do] if end else [],
        facts=[(name, facts.shown(text)) for name, text in overview(facts) if text],
        figures=results(run),
        time=time_use(facts),
        ranks=rank_times(facts),
        map=_map(facts),
        settings=settings(facts),
        changes=changes(facts),
        environment=environment(facts),
        damaged=[facts.shown(text) for text in facts.view.damaged],
    )


def _sentence(facts: RunFacts) -> str:
    """How the run ended, or its progress: the words of `status` and `watch`."""
    view = facts.view
    if view.state.over:
        return view.reason
    return ", ".join(filter(None, (*figures(view).values(), remark(view, ""))))


def _map(facts: RunFacts) -> Markup | None:
    if not facts.outlook:
        return None
    return Markup("".join(map_svg.parts(facts.outlook.map)))
