"""A run file for a login node: its text, its site, its overrides, and its code."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.user import user_name
from torusrun.orchestrator.images import source
from torusrun.orchestrator.keys.load import Loaded, RunSource, load
from torusrun.orchestrator.keys.run import NO_CODE
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.remote.links.host import BadAnswer, of
from torusrun.orchestrator.remote.login_node import sent_files
from torusrun.orchestrator.remote.session import Session, received
from torusrun.orchestrator.run.attempts.create import no_code
from torusrun.orchestrator.run.code.freeze import freeze
from torusrun.orchestrator.run.folder import provenance
from torusrun.orchestrator.run.plan import secret_values
from torusrun.orchestrator.run.plan.plan import Plan

PIECE_BYTES = 1 << 18
Request = dict[str, Any]


@contextmanager
def carried(
    planned: Plan, path: RunSource, site: str | None, settings: Sequence[str], *, code: bool = True
) -> Iterator[tuple[Session, Request]]:
    """A context with a connection to a plan's login node and the request with its run file, and its code if `code`.

    The code has been sent. Raises UserError and SiteError.
    """
    loaded = load(path, site=site, settings=settings)
    _check_image(loaded)
    request = _request(loaded, planned, [*settings, *([f"code={NO_CODE}"] if planned.code and not code else [])])
    with tempfile.TemporaryDirectory(prefix="torusrun-") as folder, Session(of(planned.site)) as link:
        if code and planned.code:
            _send_code(link, planned, request, Path(folder) / "code")
        yield link, request


def _check_image(loaded: Loaded) -> None:
    """Raise UserError if the image is a file of this machine."""
    image = loaded.run.image
    if image and source.is_path(image) and not image.startswith(("/", "~")):
        problem = f"{image!r} is a file of this machine: give the absolute path that it has on {loaded.site.host}"
        raise UserError(f"{loaded.source}: image: {problem}, or the name of an image file that comes with torusrun")


def _request(loaded: Loaded, planned: Plan, settings: Sequence[str]) -> Request:
    """All that the login node needs for the plan, except the code."""
    folder = loaded.folder
    gathered, diff = provenance.gather(folder, secret=planned.secret_sources)
    asked_from = {"host": socket.gethostname(), "user": user_name(), "folder": str(folder)}
    site = site_text(loaded.site)
    file = Path(loaded.source).name if loaded.source in loaded.files else "run.yaml"
    site_name = Path(loaded.site_source).stem
    files = [(f"spec/{file}", loaded.text), (f"site/{site_name}.yaml", site)]  # below the folder of the call
    secrets = secret_values.read(planned)  # of this machine; there, each is a variable of the shell
    provenance_here = {"git": gathered["git"], "submitted_from": asked_from}
    if words := gathered.get("command_line"):
        provenance_here["command_line"] = words
    return {
        "run": planned.run_id,
        "site_name": site_name,
        "files": files,
        "names": [(files[0][0], loaded.source), (files[1][0], loaded.site_source)],  # those on this machine
        "settings": [*settings, *(f"{_key(name)}={{from_shell: true}}" for name in secrets)],
        "secrets": secrets,
        "origin": {"provenance": provenance_here, "diff": diff, "code": {}},
        "code": None,
    }


def site_text(site: Site) -> str:
    """The file of a site for its login node, from which it is not reached through a host."""
    values = as_written(replace(site, host=None, connect=None))
    return json.dumps({key: value for key, value in values.items() if value is not None})


def _key(secret: str) -> str:
    return "notify.webhook" if secret == secret_values.WEBHOOK else f"env.{secret}"


def _send_code(link: Session, planned: Plan, request: Request, copy: Path) -> None:
    """Freeze the code, send its missing files, and add it to the request."""
    assert planned.code
    frozen = freeze(
        planned.code, copy, planned.run.code_limit_bytes, leave_out=no_code(planned), secret=planned.secret_files
    )
    entries = sent_files.listing(copy)
    files = {entry.sha256: copy / entry.name for entry in entries if entry.kind == "file"}
    answer, _ = link.ask({"ask": "missing", "sha256s": sorted(files)})
    for sha256 in received(link.host, tuple[str, ...], answer.get("missing")):
        if sha256 not in files:
            raise BadAnswer(f"{link.host.address}: it requests a file that was not offered")
        _send(link, sha256, files[sha256])
    record = frozen.record()
    request["origin"]["code"] = {key: record[key] for key in ("source", "commit", "dirty", "notes")}
    request["names"].append((sent_files.CODE, record["source"]))
    request["code"] = {"sha256": frozen.checksum, "entries": [asdict(entry) for entry in entries]}


def _send(link: Session, sha256: str, path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        for at in range(0, size or 1, PIECE_BYTES):
            question = {"ask": "keep", "sha256": sha256, "at": at, "last": at + PIECE_BYTES >= size}
            link.ask(question, file.read(PIECE_BYTES))
