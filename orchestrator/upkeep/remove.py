"""Removes runs that are over: their folders, with logs, metrics and checkpoints. A run at work is never touched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.attempts.cancel import is_unsure
from torusrun.orchestrator.run.folder import attempt_folders, claim, index, ledger, settled
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import look, views
from torusrun.orchestrator.run.state.view import View


def remove_all(runs: Sequence[RunFolder], *, force: bool = False) -> dict[RunFolder, TorusrunError]:
    """Remove these runs; the errors by those that stay. `force` also removes LOST runs, which may still be at work."""
    refused: dict[RunFolder, TorusrunError] = {}
    needed = _awaited(index.runs())
    for run in runs:
        try:
            _remove(run, needed, force)
        except TorusrunError as error:
            refused[run] = error
    return refused


def _remove(run: RunFolder, needed: Collection[Path], force: bool) -> None:
    """Remove a run. Raises UserError if it is not over or another run waits for it, SiteError if a part is left."""
    index.own(run)
    if not run.ledger.exists():
        raise UserError(f"{run.folder}: this has no ledger, so it is unknown whether the run is over; look at it")
    with alone(run):  # nobody resumes it meanwhile
        check_over(run, look(run), force=force)
        if run.folder in needed:
            raise UserError(f"another run waits for {run.run_id} (--after): remove it once that one is over")
        settled.forget([run.run_id])
        index.forget(run)
    if run.folder.exists() or run.removed.exists():
        left = run.removed if run.removed.exists() else run.folder
        raise SiteError(f"{left}: this could not be removed completely; see its permissions, and remove it again")


def check_over(run: RunFolder, seen: View, *, force: bool = False) -> None:
    """Raise UserError unless the run is over and no process of its ranks lives. `force`: LOST is over as well."""
    if not seen.state.over:
        raise UserError(f"{run.run_id} is {seen.state.value}; cancel it first: `torusrun cancel {run.run_id}`")
    alive = {number: claim.held(run.attempt(number)) for number in attempt_folders.attempts(run)}
    if at_work := next((number for number, held in alive.items() if held), 0):
        who = claim.holders(run.attempt(at_work))
        end = f"`torusrun cancel {run.run_id}` ends those of this host"
        raise UserError(f"{run.run_id} has processes that are still at work: {who}; {end}")
    if seen.state is State.LOST and None in alive.values():
        raise UserError(f"{run.run_id} may have processes that are still at work; see where: `torusrun explain`")
    if not force and is_unsure(run, seen):
        raise UserError(
            f"{run.run_id} is LOST: {seen.reason}; it is unknown whether job {seen.job} is over: "
            f"`torusrun cancel {run.run_id}`, then `torusrun rm --force {run.run_id}`"
        )


def _awaited(runs: Sequence[RunFolder]) -> set[Path]:
    """The folders of the runs for which other runs, which are not over, wait."""
    folders: set[Path] = set()
    for view in views(runs):
        if view.state.over:
            continue
        for event in ledger.events(RunFolder(Path(view.folder)).ledger):
            if isinstance(event, Submitting):
                folders |= {Path(folder) for folder in (*event.after, *event.after_any, *event.after_ready.values())}
    return folders
