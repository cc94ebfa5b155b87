"""Submit through a login node: the run file, the site and the code go there, and the submission is the usual one.

The run's id is chosen here. So a submission whose answer was lost is asked for again, and finds the run that was made.
"""

from __future__ import annotations

import getpass
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.attempts.create import written
from orchestrator.code.freeze import freeze
from orchestrator.containers import source
from orchestrator.errors import SiteError, TorusrunError, UserError
from orchestrator.plans.plan import Plan
from orchestrator.remote import asking, known, sent
from orchestrator.remote.asking import Gone
from orchestrator.remote.host import LinkLost, of
from orchestrator.remote.known import Known
from orchestrator.remote.session import Lasting
from orchestrator.runs import provenance
from orchestrator.spec.load import Loaded, load
from orchestrator.spec.paths import absolute
from orchestrator.spec.write import as_written

PATIENCE_S = 1800.0
PIECE_BYTES = 1 << 18


def submit(planned: Plan, path: str, *, site: str | None = None, settings: Sequence[str] = ()) -> Known:
    """Submit the plan of the run file at `path` through its site's login node.

    Raises UserError for what is written wrong, SiteError for what is refused, LinkLost where nobody knows.
    """
    loaded = load(path, site=site, settings=settings)
    _check_image(loaded)
    host = of(loaded.site)
    assert host
    with tempfile.TemporaryDirectory(prefix="torusrun-") as folder, Lasting(host, PATIENCE_S) as link:
        request = _request(loaded, planned, settings)
        request["code"] = _send_code(link, planned, Path(folder) / "code")
        run = Known(planned.run_id, host, Path(loaded.site_source).stem, time.time())
        known.keep(run)
        try:
            unsure = _ask(link, request).get("unsure")
        except LinkLost as error:
            raise LinkLost(f"{error}; `torusrun status {run.run}` tells whether it was submitted") from None
        except TorusrunError as error:
            known.forget(run.run)
            raise type(error)(str(error).replace(_spec_of(error, loaded), loaded.source)) from None
    if unsure:
        raise SiteError(f"{host.address}: {unsure}; `torusrun status {run.run}` tells whether it was submitted")
    return run


def _check_image(loaded: Loaded) -> None:
    image = loaded.run.image
    if image and source.is_path(image) and not image.startswith(("/", "~")):
        problem = f"{image!r} is a file of this machine: give the absolute path that it has on {loaded.site.host}"
        raise UserError(f"{loaded.source}: image: {problem}, or the name of an image file that comes with torusrun")


def _request(loaded: Loaded, planned: Plan, settings: Sequence[str]) -> dict[str, Any]:
    folder = absolute(loaded.source).parent
    gathered, diff = provenance.gather(folder)
    asked_from = {"host": socket.gethostname(), "user": getpass.getuser(), "folder": str(folder)}
    site = {
        key: value
        for key, value in as_written(replace(loaded.site, host=None, connect=None)).items()
        if value is not None
    }
    return {
        "do": "submit",
        "run": planned.run_id,
        "file": Path(loaded.source).name,
        "text": loaded.text,
        "site": site,
        "site_name": Path(loaded.site_source).stem,
        "settings": list(settings),
        "provenance": {"git": gathered["git"], "submitted_from": asked_from},
        "diff": diff,
    }


def _send_code(link: Lasting, planned: Plan, copy: Path) -> dict[str, Any] | None:
    """Freeze the code and send the files that are not there yet; how the request names it, None where there is none."""
    if not planned.code:
        return None
    frozen = freeze(planned.code, copy, planned.run.code_limit_bytes, leave_out=written(planned))
    entries = sent.listing(copy)
    files = {entry.sha256: copy / entry.name for entry in entries if entry.kind == "file"}
    for sha256 in link.ask({"ask": "missing", "sha256s": sorted(files)})[0]["missing"]:
        _send(link, sha256, files[sha256])
    record = frozen.record()
    origin = {key: record[key] for key in ("source", "commit", "dirty", "notes")}
    return sent.as_json(entries, frozen.checksum, origin)


def _send(link: Lasting, sha256: str, path: Path) -> None:
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while True:
            piece = file.read(PIECE_BYTES)
            last = at + len(piece) >= size
            link.ask({"ask": "keep", "sha256": sha256, "at": at, "last": last}, piece)
            at += len(piece)
            if last:
                return


def _ask(link: Lasting, request: dict[str, Any]) -> dict[str, Any]:
    """Have it submitted; a second time where the login node was restarted meanwhile. What was answered."""
    try:
        return asking.answer(link, request, f"submit-{request['run']}")
    except Gone:
        return asking.answer(link, request, f"submit-{request['run']}-again")


def _spec_of(error: TorusrunError, loaded: Loaded) -> str:
    """The path of the run file over there, as a message names it; of no use here."""
    name = Path(loaded.source).name
    return next(
        (word.partition(f"/{name}")[0] + f"/{name}" for word in str(error).split() if f"/spec/{name}" in word), "\0"
    )
