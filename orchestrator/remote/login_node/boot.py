"""The program that a session begins with on the login node: it needs nothing but Python, and installs torusrun.

It is sent as text, after that of `orchestrator.base.strangers`, and imports nothing of torusrun before that is
installed. It reads one frame with the list of wheels, asks for those that are not there, checks what arrives against
its SHA-256, and unpacks it into a folder of its own below ~/.local/share/torusrun, under an unfinished name until it
is whole. Then it hands over to `serve`. A folder that a stranger may have made or filled is refused.
"""

# ruff: noqa: UP031 (an older Python has to come as far as saying that it is too old)

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.base.strangers import objection

OLDEST = (3, 10)
MARK = b"torusrun: ready\n"


def home() -> str:
    named = os.environ.get("XDG_DATA_HOME", "")
    return os.path.join(named if os.path.isabs(named) else os.path.expanduser("~/.local/share"), "torusrun")


def answer(out: Any, **values: Any) -> None:
    out.write(json.dumps(dict(values, bytes=0)).encode() + b"\n")
    out.flush()


def old(found: str, wanted: str) -> bool:
    """Whether a version such as '3.1.6' comes before another; only its first two numbers count."""

    def numbers(version: str) -> Any:
        parts = (version.split(".") + ["0"])[:2]
        return [int("".join(c for c in part if c.isdigit()) or 0) for part in parts]

    return bool(numbers(found) < numbers(wanted))


def needed(wheel: Any) -> bool:
    """Whether this Python lacks what is in a wheel; torusrun itself is always ours."""
    import importlib.metadata
    import importlib.util

    if not wheel["at_least"]:
        return True
    try:
        return importlib.util.find_spec(wheel["module"]) is None or old(
            importlib.metadata.version(wheel["name"]), wheel["at_least"]
        )
    except (ImportError, ValueError):
        return True


def install(name: str, folder: str, reads: Any) -> None:
    """Unpack the wheel that comes next into `folder`, whole or not at all."""
    import hashlib
    import io
    import shutil
    import tempfile
    import zipfile

    sent = json.loads(reads.readline())
    content = reads.read(sent["bytes"])
    if hashlib.sha256(content).hexdigest() != sent["sha256"]:
        raise OSError("%s arrived damaged" % name)
    unfinished = tempfile.mkdtemp(prefix=".", dir=home())
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(unfinished)
        os.chmod(unfinished, 0o700)
        try:
            os.rename(unfinished, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another session was first
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def main() -> None:
    os.umask(0o077)
    reads, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not print between the frames
    out.write(MARK)
    out.flush()
    wheels = json.loads(reads.readline())["wheels"]
    if sys.version_info < OLDEST:
        found = "%s there is Python %s" % (sys.executable, sys.version.split()[0])
        answer(out, error=found + ", and 3.10 or newer is needed: name one as `python` in the site")
        return
    wheels = [wheel for wheel in wheels if needed(wheel)]
    for wheel in wheels:
        wheel["folder"] = os.path.join(home(), wheel["folder"])
    missing = [wheel for wheel in wheels if not os.path.isdir(wheel["folder"])]
    try:
        os.makedirs(home(), mode=0o700, exist_ok=True)
        folders = [home()] + [wheel["folder"] for wheel in wheels if wheel not in missing]
        refused = [reason for reason in map(objection, folders) if reason]
        if refused:
            answer(out, error="torusrun is not installed: " + refused[0])
            return
        answer(out, missing=[wheel["name"] for wheel in missing])
        for wheel in missing:
            install(wheel["name"], wheel["folder"], reads)
    except OSError as error:
        answer(out, error="torusrun cannot be installed in %s: %s" % (home(), error.strerror or error))
        return
    folders = [wheel["folder"] for wheel in wheels]
    sys.path[:] = folders[:1] + sys.path + folders[1:]
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders + [e for e in inherited if e not in folders])
    answer(out, installed=[wheel["name"] for wheel in missing])
    from orchestrator.remote.login_node.serve import serve

    serve(reads, out)


if __name__ == "__main__":
    main()
