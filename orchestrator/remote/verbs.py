"""Verbs of one run on a login node: they run there, and what they print is shown here."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import UserError
from orchestrator.remote import known
from orchestrator.remote.known import Known

PATIENCE_S = 1800.0  # what follows a run there waits as long for a reader


def run(word: str, verb: str, options: Sequence[str] = ()) -> int | None:
    """Run `torusrun VERB RUN OPTIONS` where the run is; its exit code. None for a run of this machine."""
    found = known.find(word)
    return None if found is None else run_there(found, verb, options)


def watch(words: Sequence[str]) -> int | None:
    """Run `torusrun watch RUN...` where these runs are; its exit code. None where all are of this machine.

    Raises UserError where they are in several places.
    """
    here, there = known.split(words) if words else ([], [])
    if not there:
        return None
    if here or len({run.host for run in there}) > 1:
        raise UserError("these runs are on several machines: watch those of one at a time; `torusrun status` shows all")
    return run_there(there[0], "watch", [run.run for run in there[1:]])


def run_there(found: Known, verb: str, options: Sequence[str] = ()) -> int:
    from orchestrator.remote import asking
    from orchestrator.remote.session import Lasting

    with Lasting(found.host, PATIENCE_S) as link:
        return asking.verb(link, [verb, found.run, *options])
