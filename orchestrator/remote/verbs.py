"""Verbs of one run on a login node: they run there, and their output is shown here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.terminal.remarks import is_quiet
from torusrun.orchestrator.remote import remote_runs
from torusrun.orchestrator.remote.remote_runs import Known


def run(word: str, verb: str, options: Sequence[str] = ()) -> int | None:
    """Run `torusrun VERB RUN OPTIONS` on the run's machine. Returns its exit code; None for a run of this machine."""
    found = remote_runs.find(word)
    return None if found is None else run_there(found, verb, options)


def of_one_host(words: Sequence[str]) -> list[Known]:
    """The runs on a login node that these words name; without words, all that are not over; [] for none.

    Raises UserError if the runs are in several places.
    """
    here, there = remote_runs.split(words)
    there = there if words else [run for run in there if not run.over]
    if there and (here or len({run.host.address for run in there}) > 1):
        names = ", ".join(sorted({run.host.address for run in there} | ({"this machine"} if here else set())))
        raise UserError(f"these runs are on {names}: name those of one; `torusrun status` shows all")
    return there


def run_there(found: Known, verb: str, options: Sequence[str] = ()) -> int:
    """Run the verb on the login node as if it ran here. Returns its exit code."""
    from torusrun.orchestrator.remote import asking
    from torusrun.orchestrator.remote.session import Session

    with Session(found.host) as link:
        quiet = ["--quiet"] if is_quiet() else []
        request = {"argv": ["torusrun.orchestrator", verb, found.run, *options, *quiet]}
        return asking.call(link, request, asking.shown(sys.stdout), asking.shown(sys.stderr))
