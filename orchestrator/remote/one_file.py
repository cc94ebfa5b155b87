"""What `torusrun.pyz` starts with: it installs itself once, as torusrun does on a login node, and runs a verb.

Its text follows those of `orchestrator.base.strangers` and `orchestrator.remote.boot`, and NAME, the archive's name. On
a network file system each opened file takes milliseconds. So the modules that verbs import are kept, compiled, in one
file for each Python, beside the installed ones; it grows when a verb imports others.
"""

# ruff: noqa: UP031 (an older Python must get as far as the message that it is too old)

import marshal
import os
import sys
import zlib
from _frozen_importlib_external import SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torusrun.orchestrator.base.strangers import objection
    from torusrun.orchestrator.remote.boot import NEEDS, OLDEST, home, pass_on, unpack

    NAME = ""
STANDARD = os.path.dirname(os.__file__)
TOTAL_BYTES = 4  # before the kept modules, their checksum
FOREIGN = ("site-packages", "dist-packages")  # folders in STANDARD of what others install, and change


class KeptLoader(SourceFileLoader):
    """Loads a module from its kept code; all else about it is as in its file."""

    def __init__(self, name: str, path: str, code: bytes) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> "Any":
        return marshal.loads(self._code)


class KeptModules:
    """A finder of modules in the file of kept code."""

    def __init__(self, folder: str) -> None:
        of_python = "%s %s %d" % (sys.version, STANDARD, os.stat(os.__file__).st_mtime_ns)
        name = ".kept-%s-%08x" % (sys.implementation.cache_tag, zlib.crc32(of_python.encode()))
        self._folder, self._file = folder, os.path.join(folder, name)
        self._modules = {}  # type: dict[str, tuple[str, bytes]]
        try:
            with open(self._file, "rb") as file:
                total, content = file.read(TOTAL_BYTES), file.read()
            if total == _total(content):  # marshal may read anything from a damaged file
                self._modules = marshal.loads(content)
        except OSError:
            pass

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in self._modules:
            return None
        file, code = self._modules[name]
        return spec_from_file_location(name, file, loader=KeptLoader(name, file, code))

    def grow(self) -> None:
        """Keep what this process has imported from its own files and from the standard library."""
        before = len(self._modules)
        try:
            for name, module in list(sys.modules.items()):
                loader = getattr(getattr(module, "__spec__", None), "loader", None)
                if type(loader) is not SourceFileLoader or loader.name != name:  # os.path is posixpath
                    continue
                if name not in self._modules and self._stays(loader.path):
                    self._modules[name] = (loader.path, marshal.dumps(loader.get_code(name)))
            if len(self._modules) > before:
                unfinished = "%s.%d" % (self._file, os.getpid())
                content = marshal.dumps(self._modules)
                with open(unfinished, "wb") as file:
                    file.write(_total(content) + content)
                os.replace(unfinished, self._file)
        except (OSError, ImportError, ValueError):  # a full disk: the next verb starts as slowly
            pass

    def _stays(self, path: str) -> bool:
        """Whether a file stays as it is for as long as this folder and this Python do."""
        ours, standard = path.startswith(self._folder + os.sep), path.startswith(STANDARD + os.sep)
        return ours or (standard and not any(name in path for name in FOREIGN))


def _total(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(TOTAL_BYTES, "big")


def started(archive: str) -> int:
    """Run the verb of the command line, installed from the file `archive` unless it is; the exit code."""
    if sys.version_info < OLDEST:
        has = "%s is Python %s" % (sys.executable, sys.version.split()[0])
        print("torusrun: %s, and 3.10 or newer is needed: write one before the file's name" % has, file=sys.stderr)
        return 3
    folder = os.path.join(home(), NAME)
    os.umask(0o077)
    try:
        os.makedirs(home(), mode=0o700, exist_ok=True)
        refused = objection(home())
        if not refused and not os.path.isdir(folder):
            unpack(folder, archive)
        refused = refused or objection(folder)
    except OSError as error:
        refused = "%s: %s; set XDG_DATA_HOME to a folder that you can write" % (home(), error.strerror or error)
    if refused:
        print("torusrun: it cannot be unpacked: " + refused, file=sys.stderr)
        return 3
    return _run(folder, archive)


def _run(folder: str, archive: str) -> int:
    needs = os.path.join(folder, NEEDS)
    pass_on([folder, needs])
    path = [entry for entry in sys.path if entry not in (archive, folder, needs)]
    if sys.flags.isolated:  # the shell starts it so, without the working directory and the user's variables
        path = os.environ["PYTHONPATH"].split(os.pathsep)[2:] + path
    at = next((n for n, entry in enumerate(path) if entry.endswith(FOREIGN)), len(path))
    sys.path[:] = [folder] + path[:at] + [needs] + path[at:]
    kept = KeptModules(folder)
    sys.meta_path.insert(0, kept)
    import importlib

    try:
        return int(importlib.import_module("torusrun.orchestrator.cli.main").main())
    finally:
        kept.grow()
