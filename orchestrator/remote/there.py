"""What a call does on the login node besides a verb: `orchestrator.remote.there FOLDER`, told by its request.json.

It answers with one line of JSON. A submission may be asked for again: the run that was made is found by its id.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator import private
from orchestrator.attempts import submit
from orchestrator.attempts.create import Origin
from orchestrator.errors import DONE, TorusrunError
from orchestrator.plans.plan import plan
from orchestrator.process import NoAnswer
from orchestrator.remote import calls, sent
from orchestrator.runs import index
from orchestrator.runs.collect import collect
from orchestrator.runs.files import write_text
from orchestrator.watch.poll import views


def main() -> int:
    os.umask(private.UMASK)
    folder = Path(sys.argv[1])
    request = json.loads((folder / "request.json").read_text())
    try:
        print(json.dumps({"schema": 1, **ACTIONS[request["do"]](folder, request)}))
    except TorusrunError as error:
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
        return error.exit_code
    return DONE


def _submit(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The run of this id, made now unless there is one."""
    known = {run.run_id: run for run in index.runs()}
    if made := known.get(request["run"]):
        return {"run": made.run_id, "folder": str(made.folder)}
    spec = folder / "spec"
    spec.mkdir(mode=0o700, exist_ok=True)
    run_file, site_file = spec / request["file"], spec / f"{request['site_name']}.yaml"
    write_text(run_file, request["text"], secret=True)
    write_text(site_file, json.dumps(request["site"]), secret=True)
    settings = list(request["settings"])
    if request["code"]:
        code = sent.assemble(request["code"], folder / "code")
        settings.append(f"code={json.dumps(str(code))}")
    planned = plan(run_file, site=str(site_file), settings=settings, run_id=request["run"])
    origin = Origin(request["provenance"], request["diff"], (request["code"] or {}).get("origin", {}))
    try:
        submit.first(planned, spec, origin=origin)
    except NoAnswer as error:  # the run stays, and is found by its name
        return {"run": planned.run_id, "folder": str(planned.folder), "unsure": str(error)}
    return {"run": planned.run_id, "folder": str(planned.folder)}


def _views(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The state of runs by their ids; of one that is not there, null."""
    known = {run.run_id: run for run in index.runs()}
    there = index.there([known[name] for name in request["runs"] if name in known])
    found = {view.run: view.as_json() for view in views(there)}
    return {"runs": {name: found.get(name) for name in request["runs"]}}


def _collect(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    """A copy of a run to be fetched, beside the run, where there is room for it; and what is in it."""
    run = index.find(request["run"])
    copy = run.folder.parent / f"{calls.STAGED}{secrets.token_hex(8)}"
    os.symlink(copy, folder / "left")
    collect(run, copy, request["checkpoints"], lambda text: print(f"torusrun: {text}", file=sys.stderr))
    return {"entries": [asdict(entry) for entry in sent.listing(copy)]}


ACTIONS = {"submit": _submit, "views": _views, "collect": _collect}


if __name__ == "__main__":
    sys.exit(main())
