"""The files that a run names and that this machine sees exactly as the ranks will.

Files are certain in the folder of the code (it is copied), on a local site, or on a file system that the nodes share.
`setup` lines and other runs may make files before the ranks start. An image and a login node have their own files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.images.shared import MOUNTINFO, SHARED, file_system
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.run import NO_CODE, RunSpec
from torusrun.orchestrator.keys.site import Site

PYTHON, SHELL = re.compile(r"python[0-9.]*"), re.compile(r"(ba|da|k|z)?sh")
# Options without an argument. The first other word after them is the script.
FLAGS = {PYTHON: re.compile(r"-[bBdEIOPqRsSuvx]+"), SHELL: re.compile(r"-[efluvx]+")}


@dataclass(frozen=True)
class NamedFile:
    """A file that a command names: the program, or the script of an interpreter. `path` is None if PATH has none."""

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
        found = which(program)
        yield NamedFile("command[0]", program, Path(found) if found else None)
    for at, interpreter in _scripts(run.command):
        if path := _place(run.command[at], run, site, folder, later):
            yield NamedFile(f"command[{at}]", run.command[at], path, interpreter)


def sees(path: Path, run: RunSpec, site: Site, *, later: bool = False) -> bool:
    """Whether the ranks will find the same at the absolute `path` as this machine now."""
    if later or site.host or run.image or run.setup or site.setup or run.software.given:
        return False
    if schedulers.get(site.scheduler).traits.one_machine:
        return True
    there = next(parent for parent in (path, *path.parents) if os.path.exists(parent))
    point, kind = file_system(Path(os.path.realpath(there)), MOUNTINFO.read_text(errors="surrogateescape"))
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
            others = (at for at, word in enumerate(command) if at and not flags.fullmatch(word))
            at = next(others, 0)
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
    return one_machine and ours and not (changed or site.host or run.image)
