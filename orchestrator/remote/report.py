"""The page about runs on a login node: it is made there, and returned as text."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.remote import asking
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session


def html(runs: Sequence[Known]) -> str:
    """The page about runs of one login node. Raises SiteError if it does not answer."""
    with Session(runs[0].host) as link:
        request = {"do": "report", "runs": [run.run for run in runs]}
        return asking.answer(link, request, str, text=str)
