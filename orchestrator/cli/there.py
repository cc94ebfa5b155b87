"""Carries out a request on this login node, after boot.py. Each request may be repeated, as its answer can be lost.

A verb with files gets them in a folder of its own, which is removed at its end; its secrets are only in its
environment. A verb that acts is not disturbed by a link that breaks; a verb that reports ends with it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from torusrun.orchestrator.base import lock, private, process
from torusrun.orchestrator.base.environment import user_name
from torusrun.orchestrator.base.errors import DONE, SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.remote import store
from torusrun.orchestrator.run.folder import index, patterns

LOCK_S = 7200.0  # for the same submission over a link that broke

Request = Mapping[str, Any]


def carried_out(request: Request, reads: IO[bytes]) -> int:
    """Carry out a request, print its answer, and return its exit code."""
    os.umask(private.UMASK)
    try:
        return ACTIONS[request["do"]](request, reads)
    except TorusrunError as error:
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"torusrun: {f'{error.filename}: ' if error.filename else ''}{error.strerror}", file=sys.stderr)
        return SiteError.exit_code


def verb(encoded: str) -> int:
    """Run the verb with these encoded words, with this program's own streams."""
    return _main(json.loads(base64.urlsafe_b64decode(encoded)))


def _main(words: list[str]) -> int:
    """Run a verb, which finds the commands of the scheduler as a login shell does."""
    from torusrun.orchestrator.cli.main import main

    os.environ.update(process.login_environment())
    time.tzset()
    try:
        return main(words)
    except SystemExit as end:  # of argparse
        return end.code if isinstance(end.code, int) else DONE


def _verb(request: Request, reads: IO[bytes]) -> int:
    if not request["buffered"]:
        threading.Thread(target=_end_with_input, daemon=True).start()
        return _main(request["words"])
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with _one_at_a_time(request.get("id", "")), _files(request, reads) as (folder, names):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = _unless_made(
                request.get("id", ""), [word.replace(store.HERE, str(folder)) for word in request["words"]]
            )
    for stream, text in ((sys.stderr, err.getvalue()), (sys.stdout, out.getvalue())):
        is_json = stream is sys.stdout and "--json" in request["words"]
        for path, name in names.items():
            text = text.replace(path, json.dumps(name)[1:-1] if is_json else name)
        print(text, end="", file=stream, flush=True)
    return code


def _end_with_input() -> None:
    """End this process when its standard input does: the link is broken, or the user has left."""
    while os.read(0, 1):  # not through a buffer, whose lock this thread would hold at the end of the process
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _unless_made(made: str, words: list[str]) -> int:
    """Run a verb that makes the run or the sweep of the id `made`, unless it exists. Its id is printed if it does."""
    if made and _exists(made):
        print(made)
        return DONE
    code = _main(words)
    if made and code and _exists(made):  # as members of a sweep that were submitted before its error
        print(made)
    return code


def _exists(made: str) -> bool:
    return any(made in (run.run_id, run.sweep.name if run.sweep else "") for run in index.runs())


@contextmanager
def _one_at_a_time(made: str) -> Iterator[None]:
    """A context that a second request with the same id enters only after the first has ended."""
    if not made:
        yield
        return
    path = state_folder() / "sent" / f"{Path(made).name}.lock"
    private.make(path.parent)
    with lock.held(path, wait_s=LOCK_S):
        yield
        path.unlink(missing_ok=True)


@contextmanager
def _files(request: Request, reads: IO[bytes]) -> Iterator[tuple[Path, dict[str, str]]]:
    """A new folder with the files and the code of a request, and their names on the user's machine by their paths."""
    if not request.get("files"):
        yield Path(), {}
        return
    os.environ.update(request.get("secrets", {}))
    private.make(store.place())
    folder = Path(tempfile.mkdtemp(prefix=store.SENT, dir=store.place()))
    try:
        for name, text in request["files"]:
            (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
            write_text(folder / name, text, secret=True)
        if code := request.get("code"):
            store.unpack(reads, code["bytes"], code["sha256"], folder / store.CODE)
        yield folder, {str(folder / path): name for path, name in request.get("names", ())}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(request: Request, reads: IO[bytes]) -> int:
    """The folder in which torusrun is installed here."""
    return _printed(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))


def _user(request: Request, reads: IO[bytes]) -> int:
    """The name of the user here."""
    return _printed(user_name())


def _collect(request: Request, reads: IO[bytes]) -> int:
    """Copy a run, beside it because there is room for it, to be fetched; print the entries of the copy."""
    from torusrun.orchestrator.upkeep.collect import collect

    run = index.find(request["run"])
    copy = _staged(run.folder.parent, request["name"])
    only = [patterns.parse(pattern["text"]) for pattern in request["only"]]
    if not copy.exists():
        collect(run, copy, request["checkpoints"], lambda text: print(f"torusrun: {text}", file=sys.stderr), only)
    return _printed([asdict(entry) for entry in store.listing(copy)])


def _fetch(request: Request, reads: IO[bytes]) -> int:
    """Write the content of files of a copy, one after the other."""
    copy = _staged(index.find(request["run"]).folder.parent, request["name"])
    with contextlib.suppress(BrokenPipeError):
        for name in request["files"]:
            with open(private.open_regular(copy / name, os.O_RDONLY), "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer, store.BLOCK_BYTES)
        sys.stdout.buffer.flush()
    return DONE


def _drop(request: Request, reads: IO[bytes]) -> int:
    shutil.rmtree(_staged(index.find(request["run"]).folder.parent, request["name"]), ignore_errors=True)
    return DONE


def _staged(folder: Path, name: str) -> Path:
    if not name.isalnum():
        raise SiteError(f"{name!r} is not the name of a copy")
    return folder / f"{store.STAGED}{name}"


def _printed(answer: Any) -> int:
    print(json.dumps(answer), flush=True)
    return DONE


ACTIONS = {
    "verb": _verb,
    "folder": _folder,
    "user": _user,
    "collect": _collect,
    "fetch": _fetch,
    "drop": _drop,
}
