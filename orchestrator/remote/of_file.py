"""Verbs of a run file through a login node: the file, its site and its code are sent, and the usual verb runs there.

A run's id is chosen here. So a submission that is repeated after a lost answer finds the run of the first.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.environment import user_name
from torusrun.orchestrator.base.errors import USER_MISTAKE, SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.terminal.remarks import is_quiet, warn
from torusrun.orchestrator.images import source
from torusrun.orchestrator.keys.load import Loaded, RunSource, load, load_site, site_file
from torusrun.orchestrator.keys.main_role import named_images
from torusrun.orchestrator.keys.run import NO_CODE
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.remote import call, remote_runs
from torusrun.orchestrator.remote.call import VerbOutput
from torusrun.orchestrator.remote.host import BadAnswer, LoginHost, Unanswered, Unreached, of
from torusrun.orchestrator.remote.program import WaitLimits
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.store import CODE, HERE, Packed
from torusrun.orchestrator.run.attempts.create import no_code
from torusrun.orchestrator.run.code.freeze import freeze
from torusrun.orchestrator.run.folder import provenance
from torusrun.orchestrator.run.plan import secret_values
from torusrun.orchestrator.run.plan.plan import Plan, new_id

Request = dict[str, Any]
ORIGIN = "origin.json"


def submit(
    verb: str,
    plan: Plan,
    path: RunSource,
    options: Sequence[str],
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    name: str = "",
    members: Sequence[str] = (),
) -> Known:
    """Run `submit` or `hold` of the run file at `path` on its login node; the run or the sweep that it makes there.

    `name` is the id of the run, if it is not the plan's; `members` are those of a sweep. It is recorded here before it
    is sent. Raises UserError for a mistake in the files, SiteError for a refusal, NoAnswer if the result is unknown.
    """
    name = name or plan.run_id
    host, request, code = _request(verb, plan, path, options, site, settings, code=verb != "hold")
    request["words"] += [f"--id={name}", f"--origin={HERE}/{ORIGIN}"]
    return _made(host, {**request, "id": name}, code, members)


def again(known: Known) -> Known:
    """Run `reproduce` of a run on its login node; the new run. Raises as `submit` does."""
    name = new_id(known.run.rsplit("-", 3)[0])
    request = call.words("reproduce", known.run, f"--id={name}", buffered=True)
    return _made(known.host, {**request, "id": name, "site_name": known.site}, (), [])


def run(
    verb: str,
    planned: Plan,
    path: RunSource,
    options: Sequence[str],
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    limits: WaitLimits = call.USUAL,
) -> VerbOutput:
    """Run `torusrun VERB FILE OPTIONS` on the login node, which makes no run; its output.

    The output names the files of this machine. Raises UserError and SiteError.
    """
    request = _request(verb, planned, path, options, site, settings, code=verb != "where")
    return call.captured(*request, limits)


def of_site(verb: str, name: str, options: Sequence[str]) -> VerbOutput:
    """Run `torusrun VERB --site SITE OPTIONS` on the login node of a site; its output. Raises SiteError."""
    site, file = load_site(name), site_file(name)
    sent = f"site/{file.stem}.yaml"
    request = call.words(verb, *options, f"--site={HERE}/{sent}", *_quiet(), buffered=True)
    files = {"files": [(sent, _site_text(site))], "names": [(sent, str(file))]}
    return call.captured(of(site), {**request, **files})


def _made(host: LoginHost, request: Mapping[str, Any], code: Iterable[bytes], members: Sequence[str]) -> Known:
    """The run of the request, or the sweep with these `members`, recorded here before the request is sent."""
    run = Known(request["id"], host, request["site_name"], time.time())
    kept = members or [run.run]
    for name in kept:
        remote_runs.keep(replace(run, run=name))
    shows = f"`torusrun status {run.run}` shows whether it was submitted"
    try:
        ended = call.repeated(host, lambda: call.captured(host, request, code))
        made = run.run in ended.out.decode(errors="replace").split()
        if ended.code not in (0, USER_MISTAKE, SiteError.exit_code) or (not ended.code and not made):
            raise BadAnswer(f"{host.address}: its answer is not what torusrun sends")
        if ended.code and made:
            raise NoAnswer(f"{host.address}: {ended.err.removeprefix('torusrun: ')}")
        call.checked(host, ended)
    except KeyboardInterrupt:
        warn(shows)
        raise
    except NoAnswer:
        raise
    except TorusrunError as error:
        if isinstance(error, Unanswered) and not isinstance(error, Unreached):
            raise NoAnswer(f"{error}; {shows}") from None
        for name in kept:
            remote_runs.forget(name)
        raise
    return run


def _request(
    verb: str,
    planned: Plan,
    path: RunSource,
    options: Sequence[str],
    site: str | None,
    settings: Sequence[str],
    *,
    code: bool = True,
) -> tuple[LoginHost, Request, Iterable[bytes]]:
    """(the login node, the request that runs the verb there, the code that follows it). Raises UserError, SiteError."""
    loaded, host = load(path, site=site, settings=settings), of(planned.site)
    _check_image(loaded)
    gathered, diff = provenance.gather(loaded.folder, secret=planned.secret_sources)
    asked_from = {"host": socket.gethostname(), "user": user_name(), "folder": str(loaded.folder)}
    kept = {"git": gathered["git"], "submitted_from": asked_from}
    origin: Request = {"provenance": kept, "diff": diff, "code": {}}
    file = Path(loaded.source).name if loaded.source in loaded.files else "run.yaml"
    run_file, site_file = f"spec/{file}", f"site/{Path(loaded.site_source).stem}.yaml"
    names = [(run_file, loaded.source), (site_file, loaded.site_source)]
    secrets = secret_values.read(planned)  # of this machine; there, each is a variable of the shell
    settings = [*settings, *(f"env.{name}={{from_shell: true}}" for name in secrets)]
    sent_code: Request | None = None
    packed: Packed | tuple[()] = ()
    if planned.code and code:
        packed, record = _packed_code(planned)
        sent_code = {"bytes": packed.size_bytes, "sha256": record["sha256"]}
        origin["code"] = {key: record[key] for key in ("source", "commit", "dirty", "notes")}
        names.append((CODE, record["source"]))
    if planned.code:
        settings.append(f'code="{HERE}/{CODE}"' if code else f"code={NO_CODE}")
    files = [(run_file, loaded.text), (site_file, _site_text(loaded.site)), (ORIGIN, json.dumps(origin))]
    words = [f"{HERE}/{run_file}", f"--site={HERE}/{site_file}", *(f"--set={text}" for text in settings), *options]
    request = call.words(verb, *words, *_quiet(), buffered=True)
    more = {"files": files, "names": names, "secrets": secrets, "code": sent_code}
    return host, {**request, **more, "site_name": Path(loaded.site_source).stem}, packed


def _quiet() -> list[str]:
    return ["--quiet"] if is_quiet() else []


def _check_image(loaded: Loaded) -> None:
    """Raise UserError if the image is a file of this machine."""
    for key, image in named_images(loaded.run).items():
        if source.is_path(image) and not image.startswith(("/", "~")):
            problem = f"{image!r} is a file of this machine: give the absolute path that it has on {loaded.site.host}"
            raise UserError(f"{loaded.source}: {key}: {problem}, or the name of an image file that comes with torusrun")


def _site_text(site: Site) -> str:
    """The file of a site for its login node, from which it is not reached through a host."""
    values = as_written(replace(site, host=None, connect=None))
    return json.dumps({key: value for key, value in values.items() if value is not None})


def _packed_code(planned: Plan) -> tuple[Packed, dict[str, Any]]:
    """The code of a plan as an archive, and its record."""
    assert planned.code
    with tempfile.TemporaryDirectory(prefix="torusrun-") as folder:
        copy = Path(folder) / "code"
        frozen = freeze(planned.code, copy, leave_out=no_code(planned), secret=planned.secret_files)
        return Packed(copy), frozen.record()
