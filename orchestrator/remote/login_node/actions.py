"""Carry out a request on this login node: `orchestrator.remote.login_node.actions FOLDER` reads FOLDER/request.json.

The answer is one line of JSON. A submission may be repeated: the run of the first one is found by its id.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import DONE, SITE_FAILED, SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.cli.handle import Run
from torusrun.orchestrator.cli.sweep_handle import Sweep
from torusrun.orchestrator.remote.login_node import calls, sent_files
from torusrun.orchestrator.run.attempts import in_hold, submit
from torusrun.orchestrator.run.attempts.create import Origin
from torusrun.orchestrator.run.attempts.make_hold import held_plan
from torusrun.orchestrator.run.attempts.reproduce import plan_again, reproduce
from torusrun.orchestrator.run.folder import index, patterns
from torusrun.orchestrator.run.folder.sweep_folder import find as find_sweep
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.state.account import Account
from torusrun.orchestrator.run.state.awaited import to_wait_for
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.sweeps.plans import SweepOptions, plan_sweep
from torusrun.orchestrator.sweeps.submit import first as submit_sweep
from torusrun.orchestrator.upkeep.collect import collect

VERB_S = 7200.0

Request = dict[str, Any]


def main() -> int:
    os.umask(private.UMASK)
    folder = Path(sys.argv[1])
    request = _read(folder / "request.json")
    try:
        print(json.dumps(ACTIONS[request["do"]](folder, request), default=_as_json))
    except TorusrunError as error:
        print(f"torusrun: {private.plain(_renamed(str(error), folder, request))}", file=sys.stderr)
        return error.exit_code
    return DONE


def _read(path: Path) -> Request:
    """The request in `path`. Its secrets become variables of this process, and the file is removed."""
    request: Request = json.loads(path.read_text())
    if secrets_there := request.pop("secrets", {}):
        os.environ.update(secrets_there)
        path.unlink()
    return request


def _as_json(value: Any) -> Any:
    if isinstance(value, Run):
        return value.id
    return value.as_json() if isinstance(value, (View, Account)) else str(value)


def _submit(folder: Path, request: Request) -> Any:
    """Make the run of this id unless it exists. Returns why it is unknown whether it was submitted; else ''."""
    if any(run.run_id == request["run"] for run in index.runs()):
        return ""
    held = request["do"] == "hold"
    later = held or any(request[key] for key in ("after", "after_any", "held"))
    file, site, settings = _placed(folder, request)
    planned = plan(file, site=str(site), settings=settings, run_id=request["run"], later=later)
    if held:
        planned = held_plan(planned, request["time_s"], request["name"], request["run"])
        how: dict[str, Any] = {"idle_s": request["idle_s"]}
    else:
        after = to_wait_for(planned.site.scheduler, request["after"], request["after_any"])
        how = {"after": after, "into": in_hold.find(request["held"]) if request["held"] else None}
    try:
        submit.first(planned, file.parent, origin=Origin(**request["origin"]), **how)
    except NoAnswer as error:  # the run stays, and is found by its name
        return str(error)
    finally:
        _forget_code(folder)
    return ""


def _reproduce(folder: Path, request: Request) -> Any:
    """Submit a run again under this id unless it exists. Returns as `_submit` does."""
    if any(run.run_id == request["run"] for run in index.runs()):
        return ""
    original = index.find(request["of"])
    try:
        reproduce(original, plan_again(original, request["run"]))
    except NoAnswer as error:
        return str(error)
    return ""


def _sweep(folder: Path, request: Request) -> Any:
    """Make the sweep of this id unless it exists. Returns why it is unknown what was submitted of it; else ''."""
    if _has_sweep(request["run"]):
        return ""
    file, site, settings = _placed(folder, request)
    asked = SweepOptions(tuple(request["values"]), request["at_once"])
    later = bool(request["after"] or request["after_any"])
    planned = plan_sweep(file, site=str(site), settings=settings, asked=asked, later=later, sweep_id=request["run"])
    after = to_wait_for(planned.site.scheduler, request["after"], request["after_any"])
    try:
        submit_sweep(planned, file.parent, after, Origin(**request["origin"]))
    except (SiteError, UserError) as error:
        if not _has_sweep(request["run"]):
            raise
        return str(error)  # members stay: those that were submitted, and those that `resume` submits
    finally:
        _forget_code(folder)
    return ""


def _forget_code(folder: Path) -> None:
    """Remove the assembled code: the run has its own copy, and a repeated request assembles it again."""
    shutil.rmtree(folder / sent_files.CODE, ignore_errors=True)


def _has_sweep(name: str) -> bool:
    return any(run.sweep and run.sweep.name == name for run in index.runs())


def _placed(folder: Path, request: Request) -> Any:
    """A run file (not of a verb of a site), its site and its overrides, as a verb takes them here."""
    for name, text in request["files"]:
        (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
        write_text(folder / name, text, secret=True)
    files = [folder / name for name, _ in request["files"]]
    if not request["code"]:
        return *files, request["settings"]
    code = sent_files.assemble(request["code"], folder / sent_files.CODE)
    return *files, [*request["settings"], f"code={json.dumps(str(code))}"]


def _renamed(text: str, folder: Path, request: Request) -> str:
    """A text in which the files of a request have their names on the user's machine."""
    for path, name in request.get("names", ()):
        text = text.replace(str(folder / path), name)
    return text


def _verb(folder: Path, request: Request) -> Any:
    """The output of a verb of a run file, or of a site alone, and its exit code."""
    *file, site, settings = _placed(folder, request)
    words = [request["verb"], *file, f"--site={site}", *(f"--set={text}" for text in settings), *request["options"]]
    command = process.module(sys.executable, "torusrun.orchestrator", *words)
    ended = process.run(command, timeout_s=VERB_S, environment=os.environ)
    printed = [_renamed(text, folder, request) for text in (ended.stdout, ended.stderr)]
    return [*printed, ended.exit_code if ended.exit_code >= 0 else SITE_FAILED]


def _views(folder: Path, request: Request) -> Any:
    """The states of runs by their ids; null for a run that does not exist."""
    known = {run.run_id: run for run in index.runs()}
    there = index.there([known[name] for name in request["runs"] if name in known])
    return dict.fromkeys(request["runs"]) | {view.run: view for view in views(there)}


def _of_run(folder: Path, request: Request) -> Any:
    """The return value of a function of a run."""
    return getattr(Run(index.find(request["run"])), request["function"])(**request["values"])


def _of_sweep(folder: Path, request: Request) -> Any:
    """The return value of a function of a sweep."""
    return getattr(Sweep(find_sweep(request["run"])[0]), request["function"])(**request["values"])


def _collect(folder: Path, request: Request) -> Any:
    """The entries of a new copy of a run, to be fetched. The copy is beside the run, where there is room for it."""
    run = index.find(request["run"])
    copy = run.folder.parent / f"{calls.STAGED}{secrets.token_hex(8)}"
    os.symlink(copy, folder / "left")
    only = [patterns.parse(one["text"]) for one in request["only"]]
    say = lambda text: print(f"torusrun: {text}", file=sys.stderr)  # noqa: E731
    collect(run, copy, request["checkpoints"], say, only, continues=False)
    return [asdict(entry) for entry in sent_files.listing(copy)]


def _init(folder: Path, request: Request) -> Any:
    """The name of this login node's site, and the text of its file."""
    from torusrun.orchestrator.sites.choices import Choices  # imported late, as only this action makes sites
    from torusrun.orchestrator.sites.make import composed

    return composed(request["name"], Choices(request["options"], request["yes"]))


def _report(folder: Path, request: Request) -> Any:
    """The page about runs, as text."""
    from torusrun.orchestrator.show.page import document

    return document.html([index.find(run) for run in request["runs"]])


ACTIONS: dict[str, Callable[[Path, Request], Any]] = {
    "submit": _submit,
    "hold": _submit,
    "reproduce": _reproduce,
    "sweep": _sweep,
    "of_sweep": _of_sweep,
    "verb": _verb,
    "views": _views,
    "run": _of_run,
    "collect": _collect,
    "report": _report,
    "init": _init,
}


if __name__ == "__main__":
    sys.exit(main())
