"""Submit through a login node: the run file, the site and the code go there, and the submission is the usual one.

The run's id is chosen here. So a submission whose answer was lost is asked for again, and finds the run that was made.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.base.errors import TorusrunError
from orchestrator.base.process import NoAnswer
from orchestrator.remote import asking, carried, remote_runs
from orchestrator.remote.asking import Gone
from orchestrator.remote.links.host import LoginHost, Unanswered, of
from orchestrator.remote.remote_runs import Known
from orchestrator.remote.replies import Made
from orchestrator.remote.session import Lasting
from orchestrator.remote.verbs import PATIENCE_S
from orchestrator.runs.attempts.make_hold import held_plan
from orchestrator.runs.plan.plan import Plan
from orchestrator.spec.load import Loaded, load


def submit(
    planned: Plan,
    path: str | Path,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    held: str = "",
) -> Known:
    """Submit the plan of the run file at `path` through its site's login node, as `api.submit` does here.

    Raises UserError for what is written wrong, SiteError for what is refused, NoAnswer where nobody knows.
    """
    loaded, host = _loaded(path, site, settings)
    how = {
        "after": [remote_runs.on(host, word) for word in after],
        "after_any": [remote_runs.on(host, word) for word in after_any],
        "held": remote_runs.held_on(host, held),
    }
    with tempfile.TemporaryDirectory(prefix="torusrun-") as folder, Lasting(host, PATIENCE_S) as link:
        request = carried.request(loaded, planned, settings)
        request["code"] = carried.send_code(link, planned, Path(folder) / "code")
        return _made(link, loaded, {"do": "submit", **request, **how})


def hold(
    planned: Plan,
    path: str | Path,
    time_s: float | None,
    idle_s: float,
    name: str | None,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> Known:
    """Hold an allocation through the login node, as `api.hold` does here. Raises as `submit` does."""
    loaded, host = _loaded(path, site, settings)
    request = carried.request(loaded, planned, settings, code=False)
    request["run"] = held_plan(planned, time_s, name).run_id
    with Lasting(host, PATIENCE_S) as link:
        return _made(link, loaded, {"do": "hold", **request, "time_s": time_s, "idle_s": idle_s, "name": name})


def _loaded(path: str | Path, site: str | None, settings: Sequence[str]) -> tuple[Loaded, LoginHost]:
    loaded = load(path, site=site, settings=settings)
    carried.check_image(loaded)
    host = of(loaded.site)
    assert host
    return loaded, host


def _made(link: Lasting, loaded: Loaded, request: dict[str, Any]) -> Known:
    """The run that was asked for. It is known here before it is asked for."""
    host = link.host
    run = Known(request["run"], host, Path(loaded.site_source).stem, time.time())
    remote_runs.keep(run)
    try:
        unsure = _ask(link, request).unsure
    except KeyboardInterrupt:
        print(f"torusrun: `torusrun status {run.run}` tells whether it was submitted", file=sys.stderr)
        raise
    except Unanswered as error:
        raise NoAnswer(f"{error}; `torusrun status {run.run}` tells whether it was submitted") from None
    except TorusrunError:
        remote_runs.forget(run.run)
        raise
    if unsure:
        raise NoAnswer(f"{host.address}: {unsure}")
    return run


def _ask(link: Lasting, request: dict[str, Any]) -> Made:
    """Have it submitted; a second time where the login node was restarted meanwhile. What was answered."""
    try:
        return asking.answer(link, request, Made, f"submit-{request['run']}")
    except Gone:
        return asking.answer(link, request, Made, f"submit-{request['run']}-again")
