"""Verbs of a run file whose site has a login node: they run there, on a copy of the file, its site and its code."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestrator.remote import asking, carried
from orchestrator.remote.asking import LARGEST_BYTES, Gathered
from orchestrator.remote.links.host import LoginHost, of
from orchestrator.remote.replies import Placed
from orchestrator.remote.session import Lasting
from orchestrator.remote.verbs import PATIENCE_S
from orchestrator.runs.plan.plan import Plan
from orchestrator.spec.load import load


def run(
    verb: str,
    planned: Plan,
    path: str,
    options: Sequence[str],
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> int:
    """Run `torusrun VERB FILE OPTIONS` on the login node; its exit code. What it prints has the names of files here.

    Raises UserError and SiteError as the verb does.
    """
    loaded = load(path, site=site, settings=settings)
    carried.check_image(loaded)
    name = f"spec-{secrets.token_hex(12)}"
    with tempfile.TemporaryDirectory(prefix="torusrun-") as folder, Lasting(_host(planned), PATIENCE_S) as link:
        request = carried.request(loaded, planned, settings)
        request["code"] = carried.send_code(link, planned, Path(folder) / "code")
        placed = asking.answer(link, {"do": "spec", **request}, Placed, name, text=str)
        argv = [verb, placed.file, f"--site={placed.site}", *(f"--set={text}" for text in placed.settings), *options]
        out, err = Gathered(link.host, LARGEST_BYTES), Gathered(link.host, LARGEST_BYTES)
        code = asking.call(link, ["orchestrator", *argv], {}, out, err, f"{name}-verb")
        for call in (f"{name}-verb", name):
            link.ask({"ask": "forget", "call": call})
    for stream, written in ((sys.stderr, err), (sys.stdout, out)):
        print(asking.renamed(written.text, placed.names), end="", file=stream, flush=True)
    return code


def _host(planned: Plan) -> LoginHost:
    host = of(planned.site)
    assert host
    return host
