"""What a run names and certainly lacks: its program, script, image, data and packages. In doubt nothing is refused.

Files are certain in the folder of the code (it is copied), on a local site, or on a file system that the nodes share.
`setup` lines and other runs may make files before the ranks start. An image and a login node have their own files.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.images import source
from torusrun.orchestrator.images.shared import MOUNTINFO, SHARED, file_system
from torusrun.orchestrator.keys.main_role import named_images
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.run import NO_CODE, RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.training.data.named import Named, packed_path
from torusrun.training.data.packed_file import SOURCES
from torusrun.training.recipe.fits import OF_FILES
from torusrun.training.recipe.near import did_you_mean

PYTHON, SHELL = re.compile(r"python[0-9.]*"), re.compile(r"(ba|da|k|z)?sh")
# Options without an argument. The first other word after them is the script.
FLAGS = {PYTHON: re.compile(r"-[bBdEIOPqRsSuvx]+"), SHELL: re.compile(r"-[efluvx]+")}
ROOT, WEIGHTS = "train.data.options.root", "train.model.weights"
RUN_BY = {".py": "python", ".sh": "bash"}
MOST_NAMES = 10_000  # names to compare with a misspelt name
ASKING_S = 10.0  # without an answer the submission goes on
PACKAGES = {"torch": "torch", "numpy": "numpy", "sklearn": "scikit-learn", "PIL": "pillow"}  # by what is imported
OF_DATA = {"digits": ["sklearn"], "imagefolder": ["PIL"], "tar-shards": ["PIL"]}
PROBE = "import sys, importlib.util as u; print('lacks', *(m for m in sys.argv[1:] if u.find_spec(m) is None))"


@dataclass(frozen=True)
class NamedFile:
    """A file that a command names: the program, or the script of an interpreter. `path` is None if PATH lacks it."""

    key: str
    word: str
    path: Path | None
    interpreter: re.Pattern[str] | None = None


def named_files(run: RunSpec, site: Site, folder: Path, *, later: bool = False) -> Iterator[NamedFile]:
    """The program of a command and its script, as far as this machine can see them.

    The run's file is in `folder`. A run that begins `later` follows other runs, or has the environment of a held
    allocation: then only its code is certain.
    """
    program = run.command[0]
    if "/" in program:
        if not (run.setup or run.software.given) and (path := _place(program, run, site, folder, later)):
            yield NamedFile("command[0]", program, path)
    elif program and not later and _has_our_path(run, site):
        place = which(program)
        yield NamedFile("command[0]", program, Path(place) if place else None)
    for at, interpreter in _scripts(run.command):
        if path := _place(run.command[at], run, site, folder, later):
            yield NamedFile(f"command[{at}]", run.command[at], path, interpreter)


def sees(path: Path, run: RunSpec, site: Site, *, later: bool = False) -> bool:
    """Whether the absolute `path` is the same for the ranks as for this machine now."""
    if later or site.host or run.image or run.setup or site.setup or run.software.given:
        return False
    if schedulers.get(site.scheduler).traits.one_machine:
        return True
    nearest = next(parent for parent in (path, *path.parents) if os.path.exists(parent))
    point, kind = file_system(Path(os.path.realpath(nearest)), MOUNTINFO.read_text(errors="surrogateescape"))
    return kind in SHARED and point != "/"  # the root of a diskless machine differs from the nodes' roots


def is_missing(path: Path) -> bool:
    """Whether `path` certainly does not exist."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def leaves(word: str) -> bool:
    """Whether `word` is a relative path to a place outside of its folder."""
    return not os.path.isabs(word) and os.path.normpath(word).split(os.sep)[0] == os.pardir


def _scripts(command: tuple[str, ...]) -> Iterator[tuple[int, re.Pattern[str]]]:
    """(index of the script in an interpreter's command, the interpreter), if it is certain."""
    for interpreter, flags in FLAGS.items():
        if interpreter.fullmatch(os.path.basename(command[0])):
            at = next((at for at, word in enumerate(command) if at and not flags.fullmatch(word)), 0)
            if at and command[at] and not command[at].startswith("-"):
                yield at, interpreter


def _place(word: str, run: RunSpec, site: Site, folder: Path, later: bool) -> Path | None:
    if os.path.isabs(word):
        return Path(word) if sees(Path(word), run, site, later=later) else None
    code = absolute(run.code or ".", folder)
    return code / word if run.code != NO_CODE and code.is_dir() else None


def _has_our_path(run: RunSpec, site: Site) -> bool:
    """Whether the ranks search programs in the same folders as this process."""
    changed = run.setup or site.setup or run.software.given or site.software.given or "PATH" in {**site.env, **run.env}
    ours = all(map(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
    one_machine = schedulers.get(site.scheduler).traits.one_machine
    changed = changed or any(role.main and role.software.given for role in run.roles.values())
    return one_machine and ours and not (changed or site.host or run.image)


def misfits(run: RunSpec, site: Site, folder: Path, *, later: bool = False) -> Iterator[tuple[str, str]]:
    """(key, error) for every file that is missing. The arguments are those of `named_files`."""
    if run.command:
        for named in named_files(run, site, folder, later=later):
            if wrong := _wrong(named, absolute(run.code or ".", folder)):
                yield named.key, f"'command': {wrong}"
    elif run.program == "train":
        yield from _data(run, site, later)
        for key, place in ((ROOT, _root(run)), (WEIGHTS, run.train.model.weights)):
            yield from _named(key, place, run, site, later)
    for key, image in named_images(run).items():
        if not site.host and not source.misfit(image) and (wrong := _image(image, folder)):
            yield key, f"{key!r}: {wrong}"
    for number, (_, path) in enumerate(run.staged):
        yield from _named(f"stage[{number}]", path, run, site, later)
    for name, role in run.roles.items():
        for kind, place in role.software.given.items():
            yield from _named(f"roles.{name}.environment.{kind}", place, run, site, later)


def _wrong(named: NamedFile, code: Path) -> str:
    path, word = named.path, named.word
    if path is None and (code / word).is_file():
        runs_it = next((f"{program}, {word}" for ends, program in RUN_BY.items() if word.endswith(ends)), f"./{word}")
        return f"{word!r} is a file of the code, and a program is looked for in the folders of PATH; write [{runs_it}]"
    if path is None:
        near = did_you_mean(word, _names(*os.get_exec_path()))
        return f"there is no program {word!r} in the folders of PATH{near or '; write its full path'}"
    if leaves(word):
        return f"{word!r} leads out of the folder of the code, and the run gets a copy of only that folder"
    if is_missing(path):
        return _missing(path, "" if os.path.isabs(word) else "; a path in 'command' begins at the folder of the code")
    if named.interpreter or _may_be_executed(path):
        return ""
    runs_it = RUN_BY.get(path.suffix, "sh")
    own = "" if os.path.isabs(word) else "`chmod +x` it, or "
    return f"{path} cannot be executed; {own}write what runs it first, as in [{runs_it}, {word}]"


def _may_be_executed(path: Path) -> bool:
    """Whether any user may execute a file. `os.access` would fail on a noexec mount, but the copy is elsewhere."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # as in a folder that this user may not search
        return True
    return not stat.S_ISREG(mode) or mode & 0o111 != 0


def _data(run: RunSpec, site: Site, later: bool) -> Iterator[tuple[str, str]]:
    """An error if a data set is not prepared. In the user's own folder it must exist before the run is submitted."""
    if (path := packed_path(run.train.data)) is None:
        return
    if run.train.data.options.get("root"):
        certain = sees(path, run, site, later=later)
    else:
        certain = not (site.host or later or {"HOME", "XDG_DATA_HOME"} & {**site.env, **run.env}.keys())
    if certain and is_missing(path):
        yield "train.data.name", f"'train.data': {Named(SOURCES[run.train.data.name]).missing(path)}"


def _root(run: RunSpec) -> str | None:
    """The folder of the images, if the data set is a folder."""
    root = run.train.data.options.get("root")
    return root if run.train.data.name in OF_FILES and isinstance(root, str) else None


def _named(key: str, place: str | None, run: RunSpec, site: Site, later: bool) -> Iterator[tuple[str, str]]:
    """An error if the ranks will certainly find nothing at `place`."""
    if place is None or "$" in place:
        return
    with suppress(UserError):  # an invalid path: the options are checked elsewhere
        path = expanded(place)
        if path.is_absolute() and sees(path, run, site, later=later) and is_missing(path):
            yield key, f"{key!r}: {_missing(path)}"


def _image(text: str, folder: Path) -> str:
    from torusrun.orchestrator.images.definitions import image_file  # a run without an image does not need it

    try:
        named = source.parse(source.beside(text, folder))
        path = image_file.find(named.text) if named.kind == "image file" else Path(named.place)
    except UserError as error:
        return str(error)
    return _missing(path) if named.kind != "registry" and is_missing(path) else ""


def _missing(path: Path, advice: str = "") -> str:
    if path.is_symlink():
        return f"{os.path.normpath(path)} is a link to nothing"
    return f"there is no {os.path.normpath(path)}{did_you_mean(path.name, _names(str(path.parent))) or advice}"


def _names(*folders: str) -> Iterator[str]:
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            yield from islice((entry.name for entry in entries), MOST_NAMES)


def check_packages(run: RunSpec, site: Site) -> None:
    """Raise UserError if the training of a run certainly lacks a package of Python."""
    elsewhere = run.image or site.host or not schedulers.get(site.scheduler).traits.one_machine
    brings = run.setup or site.setup or site.software.given or "PYTHONPATH" in {**site.env, **run.env}
    if run.command or elsewhere or brings:
        return
    if lacking := _lacking(site.interpreter, ["torch", "numpy", *OF_DATA.get(run.train.data.name, [])]):
        packages = " ".join(PACKAGES[module] for module in lacking)
        raise UserError(
            f"'train' needs {' and '.join(packages.split())}, which {site.interpreter} does not have: `pip install "
            f"{packages}` there, or name another Python as 'python' of the site"
        )


def how_to_install(text: str) -> str:
    """What to install, if a text has Python's error about a missing module; '' otherwise."""
    name = text.partition("No module named '")[2].partition("'")[0].partition(".")[0]
    if not name:
        return ""
    package = PACKAGES.get(name, name)
    what = f"the package that has it ({package}?)" if name not in PACKAGES else package
    return f"install {what} for the Python of the ranks, or in their image: `python -m pip install {package}`"


def _lacking(python: str, modules: list[str]) -> list[str]:
    """The modules that a Python does not have; none if this Python cannot be run here."""
    if python == sys.executable:
        return [module for module in modules if find_spec(module) is None]
    try:
        done = process.run(process.program(python, PROBE, *modules), timeout_s=ASKING_S)
    except SiteError:
        return []
    line = next((line for line in done.stdout.splitlines() if line.startswith("lacks")), "")
    return [word for word in line.split()[1:] if word in modules]
