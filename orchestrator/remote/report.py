"""The page about runs on a login node: it is made there, and returned as text."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.remote import asking
from torusrun.orchestrator.remote.links.host import BadAnswer
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session
from torusrun.orchestrator.show.page.foreign import objection


def html(runs: Sequence[Known]) -> str:
    """The page about runs of one login node. Raises SiteError if it does not answer, or with another kind of page."""
    with Session(runs[0].host) as link:
        request = {"do": "report", "runs": [run.run for run in runs]}
        page = asking.answer(link, request, str, text=str)
    if other := objection(page):
        raise BadAnswer(f"{runs[0].host.address}: its page has {other}, which no page of torusrun has; it is not kept")
    return page
