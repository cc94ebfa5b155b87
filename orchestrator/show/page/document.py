"""The page about runs: an HTML document, a pure function of their facts, and its file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.shown.numbers import moment
from torusrun.orchestrator.base.templates import page
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import PATIENCE_S, views
from torusrun.orchestrator.show.page.charts import COLUMNS, Drawn, charts, series
from torusrun.orchestrator.show.page.facts import RunFacts, read
from torusrun.orchestrator.show.page.part import best_first, comparison, part
from torusrun.training.counted import counted

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
    every, by = [Drawn("", facts, series(facts.rows)) for facts in runs], ""
    if len(every) > MOST_DRAWN:
        every, by = best_first(every)
    if len(every) > 1:
        every = [replace(run, letter=ascii_uppercase[n] if n < MOST_DRAWN else "") for n, run in enumerate(every)]
    shown = every[:MOST_DRAWN]
    title, compared = comparison(every) if len(every) > 1 else (plain(runs[0].view.run), None)
    return page(
        "report/page.html.j2",
        title=title,
        runs=[part(run, number) for number, run in enumerate(shown)],
        charts=charts(shown),
        compared=compared,
        best_by=by,
        made=moment(max(facts.now_s for facts in runs)),
        version=__version__,
        columns=COLUMNS,
    )


def html(runs: Sequence[RunFolder]) -> str:
    """The page about runs as they stand now. It may query their schedulers. Raises UserError for too many."""
    refuse_many(len(runs))
    view_of = {view.folder: view for view in views(runs, patience_s=PATIENCE_S)}
    with busy(f"reading the records of {counted(len(runs), 'run')}"):
        return document([read(run, view_of[str(run.folder)]) for run in runs])


def check(path: Path, *, force: bool = False) -> Path:
    """The absolute path of a page to write. Raises UserError if there is a file of this name, unless with `force`."""
    path = absolute(path)
    if path.is_dir():
        raise UserError(f"{path}: this is a folder; name a file, as in -o {path.name}/report.html")
    if os.path.lexists(path) and not force:
        raise UserError(f"{path} exists already; name another file with -o, or overwrite it with --force")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: there is no such folder; make it, or name another file with -o")
    return path


def write(path: Path, text: str) -> Path:
    """Write a page in one step: whole or not at all. Raises SiteError if that fails."""
    write_text(path, text)
    return path
