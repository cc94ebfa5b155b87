"""Submits a run again: the same copy of its code, the same image, settings, seed and grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.private import read_bytes
from torusrun.orchestrator.base.terminal.remarks import busy, say
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.attempts import create, submit
from torusrun.orchestrator.run.code import freeze
from torusrun.orchestrator.run.folder import allocation, index, ledger, provenance
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan import attempt_plan, plan_files
from torusrun.orchestrator.run.plan.fits import misfits
from torusrun.orchestrator.run.plan.plan import Plan, new_id
from torusrun.orchestrator.run.plan.role_plans import of_images

LARGEST_BYTES = 64_000_000  # of git's diff, or of a run's file
ANEW = "submit its run file as a new run"


def plan_again(run: RunFolder, run_id: str = "") -> Plan:
    """The plan of a run like the first attempt of `run`, on its site as it was recorded; `run_id` if chosen elsewhere.

    Raises UserError if the run is another user's or a held allocation, or if its code or image are gone or changed.
    """
    index.own(run)
    if allocation.is_held(run):
        raise UserError(f"{run.run_id} holds an allocation, and trains nothing; `torusrun hold` makes another one")
    kept = plan_files.read_first(run, 1)
    spec = replace(kept.run, grid=_grid(run, kept))
    if wrong := list(map(str, misfits(spec, kept.site))):
        raise UserError(f"{run.run_id} does not fit this torusrun any more: {'; '.join(wrong)}")
    _check_code(run, kept)
    _check_images(run, kept)
    run_id = run_id or new_id(spec.name)
    folder = absolute(kept.site.runs) / run_id
    return replace(kept, run_id=run_id, run=spec, folder=folder, spec_text=_text(run.spec))


def reproduce(run: RunFolder, plan: Plan) -> RunFolder:
    """Submit the `plan_again` of a run; the new run, whose provenance names the old one.

    Raises the errors of `submit.first`.
    """
    before = read_object(run.provenance) or {}
    for note in _notes(run, before):
        say(f"note: {note}")
    diff = _text(run.code_diff) if run.code_diff.exists() else ""
    known = {"git": before.get("git"), provenance.REPRODUCES: run.run_id}
    return submit.first(plan, run.folder, origin=create.Origin(known, diff, {}, run))


def _grid(run: RunFolder, kept: Plan) -> tuple[int, ...] | None:
    """The grid of the run, chosen by its job if the run left it to the job: only the same grid gives the same bits."""
    begun = [event for event in ledger.events(run.ledger) if isinstance(event, Started) and event.grid]
    if kept.has_grid or not begun or math.prod(begun[0].grid or ()) != kept.ranks:
        return kept.run.grid
    return begun[0].grid


def _check_code(run: RunFolder, kept: Plan) -> None:
    if not kept.code:
        return
    record = read_object(run.code_record)
    with busy(f"reading {run.code}, whose checksum is compared"):
        wrong = freeze.changed(run.code, record) if record else f"{run.code_record} is gone"
    if wrong:
        raise UserError(f"{run.code} is not the code that {run.run_id} was submitted with: {wrong}; {ANEW}")


def _check_images(run: RunFolder, kept: Plan) -> None:
    names = of_images(kept)
    images = image_kept.all_kept(run, kept.run.image) if names else {}
    for name in names:
        if name not in images:
            file = run.image if name == kept.run.image else run.images
            raise UserError(f"{file} is gone, which names the image of {run.run_id}; {ANEW}")
        _check_image(run, images[name])


def _check_image(run: RunFolder, image: Image) -> None:
    try:
        wrong = image_kept.changed(image)
    except SiteError as error:
        raise UserError(f"{error}; put it back, or {ANEW}") from None
    if wrong:
        raise UserError(
            f"{image.path} is not the image that {run.run_id} was submitted with: {wrong}; put it back, or {ANEW}"
        )


def _notes(run: RunFolder, before: Mapping[str, Any]) -> Iterator[str]:
    """What may give other results: other versions here, or later attempts that were not like the first."""
    if others := provenance.other_versions(before):
        yield f"results may differ: {', '.join(others)}"
    history = plan_files.history(run, ledger.events(run.ledger))
    changed = attempt_plan.changed_before(history, math.inf)
    if changed.nodes or changed.grid is not None:
        yield f"{run.run_id} continued on other nodes or another grid; this run takes those of its first attempt"


def _text(path: Path) -> str:
    with explained(f"{path}: cannot be read"):
        return read_bytes(path, LARGEST_BYTES).decode("utf-8", "replace")
