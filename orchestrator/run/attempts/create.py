"""Makes the folders of a run and of an attempt, under an unfinished name that is renamed when they are complete.

So the remains of a killed client never look like a run. The index is written first: it leads to these remains.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import read_object, write_json, write_text
from torusrun.orchestrator.base.terminal.remarks import busy, say
from torusrun.orchestrator.images.source import parse
from torusrun.orchestrator.run.code.freeze import chosen, copy_again, freeze, share
from torusrun.orchestrator.run.code.select import SelectedCode
from torusrun.orchestrator.run.folder import allocation, index, kept_secrets, ledger, provenance, shown_plan
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.records import reserve
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan import secret_values
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.missing import check_packages, named_files
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import write_attempt, write_first
from torusrun.orchestrator.run.plan.role_plans import of_images

OTHER_RUNS = "name one that you can write as 'runs' in a site file, as of --site ./mine.yaml"


@dataclass(frozen=True)
class Origin:
    """The origin of a run from another machine, or of a run that is repeated.

    Its provenance, git's diff, its record of the code, and the run `again` whose image and copy of the code it takes.
    """

    provenance: dict[str, Any]
    diff: str
    code: dict[str, Any]
    again: RunFolder | None = None


def run(
    first: AttemptPlan,
    source: Path,
    script: str,
    event: Submitting,
    origin: Origin | None = None,
    idle_s: float | None = None,
) -> RunFolder:
    """Make the folder of a run with its first attempt and its script; the spec is in the folder `source`.

    With `idle_s` its job holds an allocation, until no attempt has run in it for that long.

    The run is in the index before it has a folder. Raises UserError if its image does not fit, its code cannot be
    copied or a secret cannot be read, SiteError if the folder cannot be made; then nothing is left.
    """
    plan = first.plan
    folder = RunFolder(plan.folder)
    images, values = images_of(plan, origin.again if origin else None), secret_values.read(plan)
    facts = facts_of(plan, source, origin)
    if idle_s is None:
        facts = _with_forecast(facts, plan)
    private.make(plan.folder.parent, plan.site.umask, OTHER_RUNS)
    with index.announced(folder), private.umask(plan.site.umask):
        try:
            fill(RunFolder(folder.unfinished), first, script, images, facts)
            kept_secrets.keep(RunFolder(folder.unfinished), values)
            if idle_s is not None:
                allocation.make(RunFolder(folder.unfinished), idle_s)
            ledger.append(RunFolder(folder.unfinished).ledger, event)
            folder.unfinished.rename(folder.folder)
        except UserError:
            index.forget(folder)
            raise
        except (OSError, SiteError) as error:
            index.forget(folder)
            reason = error.strerror if isinstance(error, OSError) else error
            raise SiteError(f"{folder.folder}: the run folder cannot be made: {reason}") from None
    return folder


def facts_of(plan: Plan, source: Path, origin: Origin | None = None) -> Origin:
    """The origin of a run whose spec is in the folder `source`; `origin` is that of a run from another machine."""
    gathered, diff = provenance.gather(source, recipe=plan.recipe, secret=plan.secret_sources)
    if unknown := (gathered["git"] or {}).get("unknown"):
        say(f"{source}: {unknown}; code.diff of the run is missing")
    origin = origin or Origin({}, diff, {})
    return replace(origin, provenance={**gathered, **origin.provenance})


def _with_forecast(facts: Origin, plan: Plan) -> Origin:
    if plan.run.command:  # imported late: each is a tenth of the start time
        from torusrun.orchestrator.run.plan.command_runs import forecast_at_submit
    else:
        from torusrun.orchestrator.run.plan.forecast import forecast_at_submit
    with busy("predicting how long it takes"):
        forecast = forecast_at_submit(plan)
    kept = {shown_plan.FORECAST: asdict(forecast)} if forecast else {}
    return replace(facts, provenance={**facts.provenance, **kept})


def images_of(plan: Plan, again: RunFolder | None = None) -> dict[str, Image]:
    """The images of a plan's roles by their names, or of the run `again`. Raises UserError if an image is unfit.

    Without an image the Python of the ranks is checked.
    """
    if plan.run.image is None:
        check_packages(plan.run, plan.site)
    if not of_images(plan):
        return {}
    from torusrun.orchestrator.run.image import checking  # imported late: a fifth of the start time

    return checking.all_fitting(plan, image_kept.all_kept(again, plan.run.image) if again else {})


def fill(
    made: RunFolder,
    first: AttemptPlan,
    script: str,
    images: Mapping[str, Image],
    origin: Origin,
    same_code: RunFolder | None = None,
) -> None:
    """Write the files of an unfinished run. It shares the copy of its code with the unfinished run `same_code`."""
    for folder in (made.folder, made.attempts):
        private.new(folder, first.plan.site.umask)
    write_text(made.spec, first.plan.spec_text, secret=first.plan.is_private)
    write_json(made.provenance, origin.provenance)
    if origin.diff:
        write_text(made.code_diff, origin.diff, secret=True)  # it may quote private files
    image_kept.keep(made, images, first.plan.run.image)
    write_first(made, first.plan)
    if other := same_code or (origin.again if first.plan.code else None):
        record = read_object(other.code_record) or {}
        if same_code:
            share(other.code, made.code)
        else:  # that run may be at work, and write into its files
            copy_again(other.code, made.code, record.get("names"))
        _check_started(first.plan, lambda name: os.path.lexists(made.code / name))
        write_json(made.code_record, record)
    elif first.plan.code:
        _freeze(first.plan, first.plan.code, made, origin)
    _fill(made.attempt(1), first, script)


def _freeze(plan: Plan, code: Path, made: RunFolder, origin: Origin) -> None:
    """Copy the code of a command into its run. Raises UserError if the code is too large or cannot be read."""
    with busy(f"copying the code in {code}"):
        frozen = freeze(code, made.code, leave_out=no_code(plan), secret=plan.secret_files)
    for note in frozen.notes:
        say(f"{code}: {note}")
    _check_started(plan, lambda name: os.path.lexists(made.code / name))
    write_json(made.code_record, {**frozen.record(), **origin.code})


def no_code(plan: Plan) -> list[str]:
    """What is not code in its folder, relative to it: the folder that the command writes, and the images."""
    folder = plan.run.checkpoints.folder
    others = [folder] if folder and not os.path.isabs(folder) else []
    for image in map(parse, of_images(plan)):
        if plan.code and image.kind in ("SIF", "squashfs", "archive", "folder", "layout"):
            parent, name = os.path.split(image.place)
            for path in (os.path.join(os.path.realpath(parent), name), os.path.realpath(image.place)):  # may be a link
                others.append(os.path.relpath(path, os.path.realpath(plan.code)))
    return others


def check(plan: Plan) -> tuple[dict[str, Image], SelectedCode | None]:
    """The images and the code of a plan's run. Raises the errors of `run`, and makes nothing.

    The code is None for a run that copies none.
    """
    made, images = RunFolder(plan.folder), images_of(plan)
    secret_values.read(plan)
    private.check_makable(plan.folder.parent, OTHER_RUNS)
    private.check_makable(index.place())
    if not plan.code:
        return images, None
    code = chosen(plan.code, made.code, leave_out=no_code(plan))
    _check_started(plan, code.has)
    return images, code


def _check_started(plan: Plan, is_copied: Callable[[str], bool]) -> None:
    """Raise UserError if the command starts a file of the code that is not copied."""
    for named in named_files(plan.run, plan.site, Path(), later=True) if plan.run.command else ():
        if not os.path.isabs(named.word) and not is_copied(os.path.normpath(named.word)):
            raise UserError(
                f"{plan.code}/{named.word} is not copied with the code: git ignores it, or it is in a virtual "
                "environment or the folder of checkpoints; have git track it, or name it by its absolute path"
            )


def attempt(made: Attempt, planned: AttemptPlan, script: str = "") -> None:
    """Make the folder of a later attempt, with its script if it is submitted. Raises SiteError if that fails."""
    try:
        shutil.rmtree(made.unfinished.folder, ignore_errors=True)  # of a client that was killed
        with private.umask(planned.plan.site.umask):
            _fill(made.unfinished, planned, script)
        made.unfinished.folder.rename(made.folder)
    except (OSError, SiteError) as error:
        shutil.rmtree(made.unfinished.folder, ignore_errors=True)
        reason = error.strerror if isinstance(error, OSError) else error
        raise SiteError(f"{made.folder}: the attempt cannot be made: {reason}") from None


def take_back(made: Attempt) -> None:
    """Remove an attempt that the scheduler refused. A rename first: a part of it must not look like an attempt."""
    with contextlib.suppress(OSError):
        made.folder.rename(made.unfinished.folder)
        shutil.rmtree(made.unfinished.folder, ignore_errors=True)


def _fill(made: Attempt, planned: AttemptPlan, script: str) -> None:
    """Write all files that the job of an attempt needs to begin."""
    private.new(made.folder, planned.plan.site.umask)
    reserve(made.end)
    write_attempt(made, planned)
    if script:
        write_text(made.script, script, secret=planned.plan.is_private)
