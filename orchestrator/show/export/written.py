"""Writes the metrics of a run into a folder of their own, in place of what was written before."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError, explained
from torusrun.orchestrator.base.private import READABLE, trusted
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.show.export.formats import format_of
from torusrun.orchestrator.show.export.table import table
from torusrun.orchestrator.show.page.series import Row
from torusrun.training.files.below import BY_UMASK


def write(run: str, metrics: Iterable[Row], into: Path, kind: str) -> Path:
    """Write the metrics of a run as a file in the folder `into`/RUN; the absolute path of the file.

    Raises UserError if there are none, for an unknown `kind`, if its package is missing, or if the file cannot be
    written.
    """
    made, found = format_of(kind), table(run, metrics)
    if not found.rows:
        raise UserError(f"{run}: it has recorded no steps; `torusrun status {run}` shows its state")
    folder, content = absolute(into), made.content(found)
    path = folder / run / made.file
    with (
        explained(f"{path}: cannot be written", UserError),
        trusted(folder) as below,
        below.folder(run, BY_UMASK) as of_run,
        of_run.unfinished(made.file, f".{made.file}.part", READABLE) as file,
    ):
        file.write(content)
    return path
