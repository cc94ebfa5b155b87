"""The first program of a session on the login node. It needs only Python, and installs torusrun.

It is sent as text, after that of `orchestrator.base.strangers`, and imports nothing of torusrun before the
installation. It reads one frame with the name of an archive, requests it if it is missing, checks its SHA-256, and
unpacks it into a folder of this name in ~/.local/share/torusrun, under an unfinished name until it is whole. Then it
calls `serve`. A folder that a stranger may have made or filled is refused.
"""

# ruff: noqa: UP031 (an older Python must get as far as the message that it is too old)

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torusrun.orchestrator.base.strangers import objection

OLDEST = (3, 10)
MARK = b"torusrun: ready\n"
NEEDS = "needs"  # the folder in the archive that has a folder for each package below
# The imports of the verbs on a login node: package, module, oldest usable version. `rich` draws on terminals alone.
PACKAGES = (
    ("pyyaml", "yaml", "6.0"),
    ("jinja2", "jinja2", "3.1"),
    ("markupsafe", "markupsafe", "2.0"),
    ("submitit", "submitit", "1.5"),
    ("cloudpickle", "cloudpickle", "1.2"),
    ("typing_extensions", "typing_extensions", "3.7"),
    ("spython", "spython", "0.3"),
    ("packaging", "packaging", "22.0"),
)


def home() -> str:
    named = os.environ.get("XDG_DATA_HOME", "")
    return os.path.join(named if os.path.isabs(named) else os.path.expanduser("~/.local/share"), "torusrun")


def answer(out: Any, **values: Any) -> None:
    out.write(json.dumps(dict(values, bytes=0)).encode() + b"\n")
    out.flush()


def old(found: str, wanted: str) -> bool:
    """Whether a version such as '3.1.6' is older than another one; only its first two numbers count."""

    def numbers(version: str) -> Any:
        parts = (version.split(".") + ["0"])[:2]
        return [int("".join(c for c in part if c.isdigit()) or 0) for part in parts]

    return bool(numbers(found) < numbers(wanted))


def lacks(package: str, module: str, at_least: str) -> bool:
    """Whether this Python lacks the package, or has one that is too old."""
    import importlib.metadata
    import importlib.util

    try:
        return importlib.util.find_spec(module) is None or old(importlib.metadata.version(package), at_least)
    except (ImportError, ValueError):
        return True


def install(folder: str, reads: Any) -> None:
    """Read the archive from `reads` and unpack it into `folder`, whole or not at all."""
    import hashlib
    import io
    import shutil
    import tempfile
    import zipfile

    sent = json.loads(reads.readline())
    content = reads.read(sent["bytes"])
    if hashlib.sha256(content).hexdigest() != sent["sha256"]:
        raise OSError("the archive arrived damaged")
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


def use(folder: str) -> None:
    """Make this Python and its child processes import torusrun and their missing packages from `folder`."""
    lacking = [os.path.join(folder, NEEDS, package[0]) for package in PACKAGES if lacks(*package)]
    sys.path[:] = [folder] + sys.path + lacking
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    own = [folder] + lacking
    os.environ["PYTHONPATH"] = os.pathsep.join(own + [entry for entry in inherited if entry not in own])


def main() -> None:
    os.umask(0o077)
    reads, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that no other output gets between the frames
    out.write(MARK)
    out.flush()
    name = json.loads(reads.readline())["archive"]
    if sys.version_info < OLDEST:
        found = "%s there is Python %s" % (sys.executable, sys.version.split()[0])
        answer(out, error=found + ", and 3.10 or newer is needed: name one as `python` in the site")
        return
    folder = os.path.join(home(), name)
    try:
        os.makedirs(home(), mode=0o700, exist_ok=True)
        is_there = os.path.isdir(folder)
        refused = objection(home()) or (objection(folder) if is_there else "")
        if refused:
            answer(out, error="torusrun is not installed: " + refused)
            return
        answer(out, missing=[] if is_there else [name])
        if not is_there:
            install(folder, reads)
    except OSError as error:
        answer(out, error="torusrun cannot be installed in %s: %s" % (home(), error.strerror or error))
        return
    use(folder)
    answer(out)
    from torusrun.orchestrator.remote.login_node.serve import serve

    serve(reads, out)


if __name__ == "__main__":
    main()
