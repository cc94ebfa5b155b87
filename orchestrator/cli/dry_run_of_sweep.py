"""The dry run of a sweep: its members, what they cost, and the command and the script of each array or job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torusrun.orchestrator.cli.dry_run import command_line
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.state.awaited import to_wait_for
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.sweeps import preview
from torusrun.orchestrator.sweeps.batches import Batch
from torusrun.orchestrator.sweeps.plans import PlannedSweep
from torusrun.orchestrator.sweeps.submit import proposed
from torusrun.training.counted import counted


def text(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> str:
    """The sections; the script of the first array, or job, comes last."""
    parts = _checked(sweep, after, after_any)
    one = parts[0]
    title = f"Dry run of sweep {sweep.folder.sweep_id}: nothing is written or submitted, and its id will be another."
    sections = [
        title,
        "\n".join(preview.lines(sweep, preview.cost(sweep))),
        "\n  ".join(["Submit commands", *map(_line, parts)]),
    ]
    script = f"{'Script of its tasks' if one.array else 'Job script of the first member'}, {one.script_path()}"
    return "\n\n".join([*sections, f"{script}\n\n{one.text()}"])


def scripts(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> str:
    """The scripts that the scheduler would get, one after the other."""
    return "".join(part.text() for part in _checked(sweep, after, after_any))


def as_json(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> dict[str, Any]:
    parts = _checked(sweep, after, after_any)
    submits = [
        {"submit": _argv(part), "members": [one.run.run_id for one in part.attempts], "script": part.text()}
        for part in parts
    ]
    return {**preview.as_json(sweep, preview.cost(sweep)), "submits": submits}


def _checked(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> list[Batch]:
    """The batches. Raises the errors of `submit`, except for requests that only the scheduler refuses."""
    create.check(sweep.members[0].plan)
    return proposed(sweep, to_wait_for(sweep.site.scheduler, after, after_any))


def _argv(part: Batch) -> list[str]:
    return client.of(part.site).submit_argv(part.script_path(), part.asked)


def _line(part: Batch) -> str:
    how = f"an array of {counted(len(part.attempts), 'job')}" if part.array else part.attempts[0].run.run_id
    return f"{command_line(_argv(part))}  # {how}"
