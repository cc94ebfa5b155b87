"""What a call does here besides a verb: `orchestrator.remote.login_node.actions FOLDER`, told by its request.json.

It answers with one line of JSON. A submission may be asked for again: the run that was made is found by its id.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.base import private
from orchestrator.base.errors import DONE, TorusrunError
from orchestrator.base.json_files import write_text
from orchestrator.base.process import NoAnswer
from orchestrator.remote import asking
from orchestrator.remote.login_node import calls, sent_files
from orchestrator.runs.attempts import in_hold, submit
from orchestrator.runs.attempts.cancel import cancel
from orchestrator.runs.attempts.create import Origin
from orchestrator.runs.attempts.make_hold import held_plan
from orchestrator.runs.attempts.resume import resume
from orchestrator.runs.folder import index, metrics
from orchestrator.runs.folder.collect import collect
from orchestrator.runs.plan.attempt_plan import changes
from orchestrator.runs.plan.plan import Plan, plan
from orchestrator.runs.state.awaited import to_wait_for
from orchestrator.runs.state.current import once_held
from orchestrator.runs.state.poll import views

SPEC, SITE, CODE = "spec", "site", "code"  # folders in the folder of the call


def main() -> int:
    os.umask(private.UMASK)
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    try:
        print(json.dumps({"schema": 1, **ACTIONS[request["do"]](folder, request)}))
    except TorusrunError as error:
        print(f"torusrun: {private.plain(asking.renamed(str(error), _names(folder, request)))}", file=sys.stderr)
        return error.exit_code
    return DONE


def _submit(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The run of this id, made now unless there is one."""
    if made := _made(request["run"]):
        return made
    planned = _plan(folder, request)
    after = to_wait_for(planned.site.scheduler, request["after"], request["after_any"])
    into = in_hold.find(request["held"]) if request["held"] else None
    return _first(planned, folder, request, after=after, into=into)


def _hold(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The held allocation of this id, asked for now unless it was."""
    if made := _made(request["run"]):
        return made
    planned = held_plan(_plan(folder, request), request["time_s"], request["name"], request["run"])
    return _first(planned, folder, request, idle_s=request["idle_s"])


def _made(run_id: str) -> dict[str, Any] | None:
    return next(({"run": run_id, "folder": str(run.folder)} for run in index.runs() if run.run_id == run_id), None)


def _first(planned: Plan, folder: Path, request: dict[str, Any], **how: Any) -> dict[str, Any]:
    origin = Origin(request["provenance"], request["diff"], (request["code"] or {}).get("origin", {}))
    made = {"run": planned.run_id, "folder": str(planned.folder)}
    try:
        submit.first(planned, folder / SPEC, origin=origin, **how)
    except NoAnswer as error:  # the run stays, and is found by its name
        return {**made, "unsure": str(error)}
    return made


def _plan(folder: Path, request: dict[str, Any]) -> Plan:
    spec = _spec(folder, request)
    later = request["do"] == "hold" or any(request.get(key) for key in ("after", "after_any", "held"))
    return plan(spec["file"], site=spec["site"], settings=spec["settings"], run_id=request["run"], later=later)


def _spec(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """A run file and its site as files, and what overrides them; `names` has their paths on the other side."""
    spec, site = folder / SPEC, folder / SITE
    for made in (spec, site):
        made.mkdir(mode=0o700, exist_ok=True)
    run_file, site_file = spec / request["file"], site / f"{request['site_name']}.yaml"
    write_text(run_file, request["text"], secret=True)
    write_text(site_file, json.dumps(request["site"]), secret=True)
    settings = list(request["settings"])
    if request["code"]:
        code = sent_files.assemble(request["code"], folder / CODE)
        settings.append(f"code={json.dumps(str(code))}")
    return {"file": str(run_file), "site": str(site_file), "settings": settings, "names": _names(folder, request)}


def _names(folder: Path, request: dict[str, Any]) -> dict[str, str]:
    """What the files of a request are called where it came from, by their paths here."""
    if "source" not in request:
        return {}
    code = (request["code"] or {}).get("origin", {}).get("source", "")
    return {
        str(folder / SPEC / request["file"]): request["source"],
        str(folder / SITE / f"{request['site_name']}.yaml"): request["site_source"],
        **({str(folder / CODE): code} if code else {}),
    }


def _views(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The state of runs by their ids; of one that is not there, null."""
    known = {run.run_id: run for run in index.runs()}
    there = index.there([known[name] for name in request["runs"] if name in known])
    found = {view.run: view.as_json() for view in views(there)}
    return {"runs": {name: found.get(name) for name in request["runs"]}}


def _held(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The view of a held allocation once it takes attempts, or is over."""
    return {"view": once_held(index.find(request["run"])).as_json()}


def _metrics(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    return {"rows": metrics.read(index.find(request["run"]).metrics)}


def _cancel(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    cancel(index.find(request["run"]))
    return {}


def _resume(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The checkpoint from which the next attempt goes on, None for the beginning."""
    run, changed = index.find(request["run"]), request["changes"]
    made = changes(changed["time"], changed["nodes"], changed["grid"], changed["exclude"])
    into = in_hold.find(request["held"]) if request["held"] else None
    origin = resume(run, made, force=request["force"], new_image=request["new_image"], into=into)
    return {"origin": str(origin) if origin else None}


def _collect(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """A copy of a run to be fetched, beside the run, where there is room for it; and what is in it."""
    run = index.find(request["run"])
    copy = run.folder.parent / f"{calls.STAGED}{secrets.token_hex(8)}"
    os.symlink(copy, folder / "left")
    collect(run, copy, request["checkpoints"], lambda text: print(f"torusrun: {text}", file=sys.stderr))
    return {"entries": [asdict(entry) for entry in sent_files.listing(copy)]}


ACTIONS: dict[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    "metrics": _metrics,
    "cancel": _cancel,
    "resume": _resume,
    "submit": _submit,
    "hold": _hold,
    "held": _held,
    "spec": _spec,
    "views": _views,
    "collect": _collect,
}


if __name__ == "__main__":
    sys.exit(main())
