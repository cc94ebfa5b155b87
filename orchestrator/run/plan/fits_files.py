"""Missing files that a run names: its program, script, image and data. In doubt nothing is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images import source
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.plan.named_files import NamedFile, is_missing, leaves, named_files, sees
from torusrun.training.data.named import Named, packed_path
from torusrun.training.data.packed_file import SOURCES
from torusrun.training.recipe.fits import OF_FILES
from torusrun.training.recipe.near import did_you_mean

ROOT, WEIGHTS = "train.data.options.root", "train.model.weights"
RUN_BY = {".py": "python", ".sh": "bash"}
MOST_NAMES = 10_000  # names to compare with a misspelt one


def misfits(run: RunSpec, site: Site, folder: Path, *, later: bool = False) -> Iterator[tuple[str, str]]:
    """(key, error) for every misfit. The arguments are those of `named_files.named_files`."""
    if run.command:
        for named in named_files(run, site, folder, later=later):
            if wrong := _wrong(named, absolute(run.code or ".", folder)):
                yield named.key, f"'command': {wrong}"
    elif run.program == "train":
        yield from _data(run, site, later)
        for key, place in ((ROOT, _root(run)), (WEIGHTS, run.train.model.weights)):
            yield from _named(key, place, run, site, later)
    if run.image and not site.host and not source.misfit(run.image) and (wrong := _image(run.image, folder)):
        yield "image", f"'image': {wrong}"


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
    """Whether any user may execute it. `os.access` would fail on a noexec mount, but the copy is elsewhere."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # as in a folder that this user may not search
        return True
    return not stat.S_ISREG(mode) or mode & 0o111 != 0


def _data(run: RunSpec, site: Site, later: bool) -> Iterator[tuple[str, str]]:
    """An error if a data set is not prepared. In the user's own folder it must be here before the run is submitted."""
    if (path := packed_path(run.train.data)) is None:
        return
    if run.train.data.options.get("root"):
        certain = sees(path, run, site, later=later)
    else:
        certain = not (site.host or later or {"HOME", "XDG_DATA_HOME"} & {**site.env, **run.env}.keys())
    if certain and is_missing(path):
        yield "train.data.name", f"'train.data': {Named(SOURCES[run.train.data.name]).missing(path)}"


def _root(run: RunSpec) -> str | None:
    """The folder of the images, if the data set is in one."""
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
    from torusrun.orchestrator.images.definitions import image_file  # a run without an image needs none of it

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
