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
    batches = _checked(sweep, after, after_any)
    first = batches[0]
    title = f"Dry run of sweep {sweep.folder.sweep_id}: nothing is written or submitted, and its id will be another."
    sections = [
        title,
        "\n".join(preview.lines(sweep, preview.cost(sweep))),
        "\n  ".join(["Submit commands", *map(_line, batches)]),
    ]
    script = f"{'Script of its tasks' if first.array else 'Job script of the first member'}, {first.script_path()}"
    return "\n\n".join([*sections, f"{script}\n\n{first.text()}"])


def scripts(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> str:
    """The scripts that the scheduler would get, one after the other."""
    return "".join(batch.text() for batch in _checked(sweep, after, after_any))


def as_json(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> dict[str, Any]:
    batches = _checked(sweep, after, after_any)
    submits = [
        {"submit": _argv(batch), "members": [attempt.run.run_id for attempt in batch.attempts], "script": batch.text()}
        for batch in batches
    ]
    return {**preview.as_json(sweep, preview.cost(sweep)), "submits": submits}


def _checked(sweep: PlannedSweep, after: Sequence[str], after_any: Sequence[str]) -> list[Batch]:
    """The batches. Raises the errors of `submit`, except for requests that only the scheduler refuses."""
    create.check(sweep.members[0].plan)
    return proposed(sweep, to_wait_for(sweep.site.scheduler, after, after_any))


def _argv(batch: Batch) -> list[str]:
    return client.of(batch.site).submit_argv(batch.script_path(), batch.asked)


def _line(batch: Batch) -> str:
    how = f"an array of {counted(len(batch.attempts), 'job')}" if batch.array else batch.attempts[0].run.run_id
    return f"{command_line(_argv(batch))}  # {how}"
