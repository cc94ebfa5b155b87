"""Writes and reads the plans in the run folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.read import read_value
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.bad_nodes.left_out import LeftOutNodes
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.events import Changes, Event, Submitting
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.plan import SCHEMA, Plan
from torusrun.training.recipe.files import Change

LARGEST_BYTES = 4_000_000  # of a plan; a spec has at most 1 MB


def write_attempt(attempt: Attempt, planned: AttemptPlan) -> None:
    """Write the plan of an attempt into its folder."""
    own = {
        "attempt": planned.number,
        "changes": planned.changes.as_json(),
        "exclude": list(planned.exclude),
        "left_out": asdict(planned.left_out),
    }
    write_json(attempt.plan, {**planned.plan.as_json(), **own}, secret=planned.plan.is_private)


def write_first(run: RunFolder, plan: Plan) -> None:
    """Write the run's plan, from which later attempts are derived."""
    write_json(run.plan, plan.as_json(), secret=plan.is_private)


def read_attempt(run: RunFolder, number: int) -> AttemptPlan:
    """The plan of an attempt. Raises SiteError if it cannot be read."""
    return _read(run.attempt(number).plan, run.folder, number)


def read_plan(run: RunFolder, number: int) -> Plan:
    """The plan of an attempt, or the run's if it cannot be read. Raises SiteError if neither can be read."""
    return _first(run, run.attempt(number).plan, run.plan)


def read_first(run: RunFolder, number: int) -> Plan:
    """The run's plan, or that of attempt `number` if it cannot be read. Raises SiteError if neither can be read."""
    return _first(run, run.plan, run.attempt(number).plan)


def history(run: RunFolder, events: Sequence[Event]) -> list[Event]:
    """The ledger's events. Submissions that the ledger has lost are restored from the plans of their attempts."""
    named = {event.attempt for event in events if isinstance(event, Submitting)}
    lost: list[Event] = []
    for number in attempt_folders.attempts(run):
        if number not in named:
            with contextlib.suppress(SiteError):
                lost.append(Submitting(number, run.run_id, changes=read_attempt(run, number).changes))
    return [*lost, *events]


def _first(run: RunFolder, *paths: Path) -> Plan:
    wrong = []
    for path in paths:
        try:
            return _read(path, run.folder).plan
        except SiteError as error:
            wrong.append(error)
    raise wrong[0]


def _read(path: Path, folder: Path, number: int = 0) -> AttemptPlan:
    """The plan in `path`, of attempt `number`, or of the run for 0."""
    try:
        kept = json.loads(private.read_bytes(path, LARGEST_BYTES))
        if kept["schema"] != SCHEMA:
            raise SiteError(f"{path}: this is schema {kept['schema']}; this torusrun reads schema {SCHEMA}")
        run = read_value(RunSpec, kept["spec"], f"{path} (spec)")
        site = read_value(Site, kept["site"], f"{path} (site)")
        changes = tuple(Change(**each) for each in kept.get("recipe", {}).get("changes", []))
        plan = Plan(kept["run"], run, site, folder, kept["python"], recipe_changes=changes)
        if not number:
            return AttemptPlan(0, plan)
        exclude = record_of(tuple[str, ...], kept["exclude"], str, "exclude")
        made = record_of(Changes, kept["changes"], str, "changes")
        left_out = record_of(LeftOutNodes, kept.get("left_out", {}), str)
        return AttemptPlan(number, plan, made, exclude, left_out)
    except OSError as error:
        raise SiteError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SpecError) as error:
        raise SiteError(f"{path}: the plan is damaged: {error}") from None
