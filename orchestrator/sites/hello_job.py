"""Doctor's job: a `command:` of a few seconds on two nodes; its ranks and this login node exchange files."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import INHERITED, KEPT
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.keys.load import site_file
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.attempts.cancel import cancel
from torusrun.orchestrator.run.attempts.submit import first
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.sites import hello
from torusrun.orchestrator.sites.checks.check import Check, failed, warning
from torusrun.orchestrator.sites.judge import Talk, judged

LIMIT_S = 300.0
LOOK_S = 0.05
POLL_S = 1.0
ENDING_S = 60.0


def checks(name: str, site: Site, wait_s: float) -> Iterator[Check]:
    """Submit the job, wait for its end, judge it, and remove its files."""
    folder = absolute(site.runs) / f".doctor-{secrets.token_hex(4)}"
    try:
        private.make(folder, site.umask)
        yield from _tried(name, site, folder, wait_s)
    except (TorusrunError, OSError) as error:
        yield failed("job", str(error), "fix what the message names, and try again")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(name: str, site: Site, folder: Path, wait_s: float) -> Iterator[Check]:
    nodes, limit_s = _size(site)
    talk = Talk(folder, secrets.token_hex(8))
    private.write_bytes(folder / "word", talk.word.encode())
    spec = folder / "doctor.yaml"
    private.write_bytes(spec, json.dumps(_spec(name, site, nodes, limit_s, folder)).encode())  # JSON is YAML
    run, judgement = first(plan(spec), folder), list[Check]()
    try:
        _ask(run, site, folder)
        view = _wait(run, talk, nodes * site.node.ranks, wait_s)
        if view is None:
            why = f"it had not ended after {wait_s:g} s, and was cancelled: {views([run])[0].reason or 'it ran'}"
            judgement = [warning("job", why, "the queue may be busy: try again with --wait 1h, or name another queue")]
        else:
            judgement = list(judged(site, nodes, talk, view, _log(run)))
    finally:
        is_gone = _removed(run)
    yield from judgement
    if not is_gone:
        yield warning(
            "job", f"run {run.run_id} is not over, and stays", f"`torusrun cancel {run.run_id}`, once it answers"
        )


def _size(site: Site) -> tuple[int, float]:
    """The (nodes, time limit in seconds) of the job: two nodes and a few minutes, or the queue's limits if lower."""
    if (asked := client.of(site)).scheduler.traits.one_machine:
        return 1, LIMIT_S
    try:
        queues = asked.describe().queues
    except SiteError:
        return 2, LIMIT_S
    mine = [queue for queue in queues if queue.name == (site.queue or queue.name)]
    most = max((queue.nodes or queue.all_nodes or 2 for queue in mine), default=2)
    longest_s = max((queue.time_s or LIMIT_S for queue in mine), default=LIMIT_S)
    return min(2, most), min(LIMIT_S, longest_s)


def _spec(name: str, site: Site, nodes: int, limit_s: float, folder: Path) -> dict[str, Any]:
    return {
        "name": "doctor",
        "site": str(site_file(name).absolute()),
        "nodes": nodes,
        "time": f"{limit_s:g}s",
        "code": "none",
        "command": process.script(site.interpreter, hello.__file__, folder),
    }


def _ask(run: RunFolder, site: Site, folder: Path) -> None:
    """Make rank 0 check, before it gets its answer, whether its node may submit the job."""
    attempt = run.attempt(1)
    asked_for = request(read_attempt(run, 1), attempt)
    if command := client.of(site).scheduler.ask_command(asked_for):
        environment = {"inherited": INHERITED, "kept": sorted(KEPT), "secrets": asked_for.secrets}
        asked = {"argv": command, "script": str(attempt.script), **environment}
        private.write_bytes(folder / "ask", json.dumps(asked).encode())


def _wait(run: RunFolder, talk: Talk, ranks: int, wait_s: float) -> View | None:
    """The run's last view, or None if it takes longer than `wait_s`; answers the ranks meanwhile."""
    end_s, poll_s = time.monotonic() + wait_s, 0.0
    while True:
        talk.listen(ranks)
        if time.monotonic() >= poll_s:
            view = views([run])[0]
            if view.state.certain:
                talk.listen(ranks)
                return view
            poll_s = time.monotonic() + POLL_S
        if time.monotonic() > end_s:
            return None
        time.sleep(LOOK_S)


def _removed(run: RunFolder) -> bool:
    """End the run if it is not over, remove it from the index, and remove its folder; False if it does not end."""
    end_s = time.monotonic() + ENDING_S
    if not views([run])[0].state.over:
        with contextlib.suppress(TorusrunError):
            cancel(run)
    while not (is_over := views([run])[0].state.over) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    if is_over:
        index.forget(run)
    return is_over


def _log(run: RunFolder) -> str:
    """The last lines of the job's and its first rank's output, for a failure."""
    texts: list[str] = []
    attempt = run.attempt(1).folder
    for path in [*sorted(attempt.glob("**/*.log")), attempt / "job.err"]:
        try:
            texts += path.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        except OSError:
            continue
    return "; ".join(line.strip() for line in texts[-6:] if line.strip())
