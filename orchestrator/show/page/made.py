"""Makes the page about runs, and writes it into a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import PATIENCE_S, views
from torusrun.orchestrator.show.page.document import document, refuse_many
from torusrun.orchestrator.show.page.facts import read
from torusrun.training.counted import counted


def html(runs: Sequence[RunFolder]) -> str:
    """The page about runs as they stand now. It may query their schedulers. Raises UserError for too many."""
    refuse_many(len(runs))
    found = {view.folder: view for view in views(runs, patience_s=PATIENCE_S)}
    with busy(f"reading the records of {counted(len(runs), 'run')}"):
        return document([read(run, found[str(run.folder)]) for run in runs])


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
