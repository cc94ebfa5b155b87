"""Verbs of a run file whose site has a login node: they run there, on a copy of the file, its site and its code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orchestrator.remote import asking
from orchestrator.remote.carried import carried
from orchestrator.remote.replies import VerbOutput
from orchestrator.runs.plan.plan import Plan


def run(
    verb: str,
    planned: Plan,
    path: str,
    options: Sequence[str],
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> int:
    """Run `torusrun VERB FILE OPTIONS` on the login node; its exit code. Its output names the files of this machine.

    Raises UserError and SiteError as the verb does.
    """
    with carried(planned, path, site, settings) as (link, request):
        request = {**request, "do": "verb", "verb": verb, "options": list(options)}
        ended = asking.answer(link, request, VerbOutput, text=str)
    for stream, text in ((sys.stderr, ended.err), (sys.stdout, ended.out)):
        print(text, end="", file=stream, flush=True)
    return ended.code
