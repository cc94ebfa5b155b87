"""The first program on the login node. It needs only Python, installs torusrun, and carries out one request.

It is sent as text, after that of `orchestrator.base.strangers`, and imports nothing of torusrun before the
installation. It reads a line with a request, in which is the name of an archive. Without a folder of this name in
~/.local/share/torusrun it answers that the archive is missing, and ends. To install, it checks the SHA-256 of the
archive and unpacks it, under an unfinished name until it is whole. A folder that a stranger may have made or filled is
refused. Once it is installed, it also runs a verb on a terminal: its argument has the words.
"""

# ruff: noqa: UP031 (an older Python must get as far as the message that it is too old)

import os
import sys

TYPE_CHECKING = False  # without `typing` and json: `torusrun.pyz` starts with this text, too
if TYPE_CHECKING:
    from typing import Any

    from torusrun.orchestrator.base.strangers import objection

OLDEST = (3, 10)
MARK = b"torusrun: ready\n"
NEEDS = "needs"  # the folder in the archive that has a folder for each package below
# The imports of the verbs on a login node: package, module, oldest usable version.
PACKAGES = (
    ("pyyaml", "yaml", "6.0"),
    ("jinja2", "jinja2", "3.1"),
    ("markupsafe", "markupsafe", "2.0"),
    ("submitit", "submitit", "1.5"),
    ("cloudpickle", "cloudpickle", "1.2"),
    ("typing_extensions", "typing_extensions", "3.7"),
    ("spython", "spython", "0.3"),
    ("packaging", "packaging", "22.0"),
    ("rich", "rich", "13.0"),
)


def home() -> str:
    named = os.environ.get("XDG_DATA_HOME", "")
    return os.path.join(named if os.path.isabs(named) else os.path.expanduser("~/.local/share"), "torusrun")


def answer(out: "Any", **values: "Any") -> None:
    import json

    out.write(json.dumps(values).encode() + b"\n")
    out.flush()


def old(version: str, wanted: str) -> bool:
    """Whether a version such as '3.1.6' is older than the wanted version; only the first two numbers count."""

    def numbers(text: str) -> "Any":
        parts = (text.split(".") + ["0"])[:2]
        return [int("".join(c for c in part if c.isdigit()) or 0) for part in parts]

    return bool(numbers(version) < numbers(wanted))


def lacks(package: str, module: str, at_least: str) -> bool:
    """Whether this Python lacks the package, or has a version that is too old."""
    import importlib.metadata
    import importlib.util

    try:
        return importlib.util.find_spec(module) is None or old(importlib.metadata.version(package), at_least)
    except (ImportError, ValueError):
        return True


def install(folder: str, size: int, sha256: str, reads: "Any") -> None:
    """Read an archive of this size from `reads` and unpack it into `folder`, whole or not at all."""
    import hashlib
    import io

    content = reads.read(size)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise OSError("the archive arrived damaged")
    unpack(folder, io.BytesIO(content))


def unpack(folder: str, packed: "Any") -> None:
    """Unpack an archive, a path or an open file, into `folder`, whole or not at all."""
    import shutil
    import tempfile
    import zipfile

    unfinished = tempfile.mkdtemp(prefix=".", dir=home())
    try:
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(unfinished)
        os.chmod(unfinished, 0o700)
        try:
            os.rename(unfinished, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another client was first
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def use(folder: str) -> None:
    """Make this Python and its child processes import torusrun and their missing packages from `folder`."""
    lacking = [os.path.join(folder, NEEDS, package[0]) for package in PACKAGES if lacks(*package)]
    sys.path[:] = [folder] + sys.path + lacking
    pass_on([folder] + lacking)


def pass_on(own: "Any") -> None:
    """Let child processes and jobs import from these folders, before all others."""
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    os.environ["PYTHONPATH"] = os.pathsep.join(own + [entry for entry in inherited if entry not in own])


def rest() -> "Any":
    """The module that continues once torusrun can be imported."""
    import importlib

    return importlib.import_module("torusrun.orchestrator.cli.there")


def carry_out() -> int:
    """Read a request from the standard input, and answer it; the exit code."""
    import json

    reads, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that no other output gets into the answer
    out.write(MARK)
    out.flush()
    request = json.loads(reads.readline())
    if sys.version_info < OLDEST:
        has = "%s there is Python %s" % (sys.executable, sys.version.split()[0])
        answer(out, error=has + ", and 3.10 or newer is needed: name one as `python` in the site")
        return 0
    folder = os.path.join(home(), request["archive"])
    try:
        os.makedirs(home(), mode=0o700, exist_ok=True)
        installed = os.path.isdir(folder)
        refused = objection(home()) or (objection(folder) if installed else "")
        if refused:
            answer(out, error="torusrun is not installed: " + refused)
            return 0
        if request["do"] == "install":
            install(folder, request["bytes"], request["sha256"], reads)
    except OSError as error:
        answer(out, error="torusrun cannot be installed in %s: %s" % (home(), error.strerror or error))
        return 0
    answer(out, folder=folder, missing=not installed)
    if not installed or request["do"] == "install":
        return 0
    use(folder)
    os.dup2(out.fileno(), 1)
    return int(rest().carried_out(request, reads))


def on_terminal(encoded: str) -> int:
    """Run the verb whose words are encoded, with this program's own streams; the exit code."""
    own = os.path.abspath(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(own)]
    use(os.path.abspath(os.path.join(own, *[os.pardir] * 4)))
    return int(rest().verb(encoded))


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(on_terminal(sys.argv[1]) if len(sys.argv) > 1 else carry_out())
