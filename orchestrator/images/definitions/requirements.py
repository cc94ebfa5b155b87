"""Turns a requirements file of pip into inputs of a build, with the files that it includes and the wheels it names.

pip reads it in the image, in which the paths of this machine do not exist. So all files get numbers, and the lines that
name a file get its new name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.build_secrets import LOGIN_MEND, has_login
from torusrun.orchestrator.images.definitions.image_file import Python
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError, shown

BUILD_ONLY = "/mnt"  # bound during a build; every base has it, so it needs no mount point
INCLUDE = re.compile(r"(\s*(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?=[^-\s=])))(\S+)(.*)", re.DOTALL)
ARCHIVE = re.compile(
    r"(\s*|[^\s#]+\s*@\s*)(?:file://)?([^\s:;#]+\.(?:whl|tar\.gz|tar\.bz2|zip))(?=[\s;#]|$)(.*)", re.DOTALL
)
EDITABLE = re.compile(r"(-e|--editable)\b")
FIND_LINKS = re.compile(r"(?:-f|--find-links)[\s=]*(?![\s=]|https?://)")
AFTER_NAME = re.compile(r"\s(?=--?[A-Za-z])")  # between a package and its options
COMMAND_LINE = re.compile(  # options of `pip install` that pip refuses in a file
    r"-U|--upgrade|--user|-t|--target|-q|--quiet|--no-deps|--no-build-isolation|--no-cache-dir|--force-reinstall|"
    r"--break-system-packages|--ignore-installed|-I|--root|--prefix|--no-warn-script-location"
)
OF_CONDA = re.compile(r"(?P<name>[\w.-]+)=(?P<version>[^=\s]+)=[^=\s]+")  # `conda list -e`
ARCHIVES = (".whl", ".tar.gz", ".tar.bz2", ".zip")
NO_FOLDER = "the build does not have this folder; make a wheel of it (`pip wheel --no-deps FOLDER`) and name the wheel"


@dataclass(frozen=True)
class Brought:
    """The Python packages of a user: arguments for pip, and their files next to the definition."""

    words: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()  # (new name, content) of the requirements file and of its included files
    archives: tuple[tuple[str, Path], ...] = ()

    @property
    def hashed(self) -> bool:
        """Whether pip will require a hash for every package."""
        return self._holds(r"(?m)^[^#]*\s--hash[=\s]|^\s*--require-hashes")

    @property
    def from_git(self) -> bool:
        return self._holds(r"(?m)^[^#]*\bgit\+")

    @property
    def torch(self) -> bool:
        return self._holds(r"(?m)^torch\s*[=@]")

    def _holds(self, pattern: str) -> bool:
        return any(re.search(pattern, text) for text in [*self.words, *(text for _, text in self.texts)])


def brought(python: Python, beside: Path) -> Brought:
    """The packages of the key `python` of an image file in `beside`. Raises UserError if a file does not exist."""
    listed = gather(beside / expanded(python.requirements)) if python.requirements else Brought()
    if python.requirements and python.packages and listed.hashed:
        raise UserError(
            f"{beside / python.requirements}: it has hashes, and 'python.packages' of the image file has none; "
            f"move {python.packages[0]} into it"
        )
    archives = [path for _, path in listed.archives]
    words = [_word(package, beside, archives) for package in python.packages]
    if listed.texts:
        words += ["-r", f"{BUILD_ONLY}/{listed.texts[0][0]}"]
    return Brought(tuple(words), listed.texts, _numbered(archives))


def _word(package: str, beside: Path, archives: list[Path]) -> str:
    if not package.endswith(".whl") or "://" in package:
        return package
    path = beside / expanded(package)
    if not path.is_file():
        raise UserError(f"{path}: the image file's wheel does not exist")
    archives.append(path)
    return f"{BUILD_ONLY}/{archive(len(archives) - 1, path)}"


def gather(path: Path) -> Brought:
    """The requirements file at `path` with all included files. Raises SpecError with the file and line of a mistake."""
    files: list[Path] = [Path(os.path.normpath(path))]
    archives: list[Path] = []
    texts: list[tuple[str, str]] = []
    for at in files:  # the loop appends to it
        text = read_text(at, "requirements file")
        if wrong := [Problem(Mark(str(at), n, 1), reason) for n, reason in misfits(text)]:
            raise SpecError(wrong)
        lines = text.splitlines(keepends=True)
        taken = (_taken_in(line, Mark(str(at), n, 1), files, archives) for n, line in enumerate(lines, 1))
        texts.append((f"requirements/{len(texts)}.txt", "".join(taken)))
    return Brought((), tuple(texts), _numbered(archives))


def archive(number: int, path: Path) -> str:
    """The name of a local wheel beside a definition; pip reads package and version from its last part."""
    return f"archives/{number}/{path.name}"


def _numbered(archives: list[Path]) -> tuple[tuple[str, Path], ...]:
    return tuple((archive(number, path), path) for number, path in enumerate(archives))


def _taken_in(line: str, mark: Mark, files: list[Path], archives: list[Path]) -> str:
    """A line with the new names of its files, which are added to `files` or `archives`."""
    beside = Path(mark.source).parent
    if (match := INCLUDE.fullmatch(line)) and "://" not in match[2]:
        number = _number(beside / expanded(match[2]), files, mark)
        return f"{match[1].rstrip()} {number}.txt{match[3]}"
    if match := ARCHIVE.fullmatch(line):
        path = beside / expanded(unquote(match[2]))
        number = _number(path, archives, mark)
        return f"{match[1]}file://{BUILD_ONLY}/{archive(number, path)}{match[3]}"
    return line


def _number(path: Path, known: list[Path], mark: Mark) -> int:
    """The position of a file in `known`; a new file is appended."""
    path = Path(os.path.normpath(path))
    if not path.is_file():
        raise SpecError([Problem(mark, f"{path}: there is no such file")])
    if path not in known:
        known.append(path)
    return known.index(path)


def misfits(text: str) -> Iterator[tuple[int, str]]:
    """(number of a line, what is wrong with it and what helps) for lines that the pip of a build cannot follow.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/ describes the lines.
    """
    for number, line in _lines(text):
        if has_login(line):
            yield number, f"the line {LOGIN_MEND}"
        elif line and (why := _misfit(line)):
            yield number, f"{shown(line)}: {why}"


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines without comments; those that a backslash joins have the number of the first."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first if joined else number
        continues = line.endswith("\\") and not re.match(r"\s*#", line)
        joined += line.removesuffix("\\") if continues else line
        if not continues:
            yield first, re.sub(r"(^|\s)#.*", "", joined).strip()
            joined = ""
    if joined:
        yield first, joined.strip()


def _misfit(line: str) -> str:
    if EDITABLE.match(line):
        return "write git+https://... without -e" if "://" in line else NO_FOLDER
    if FIND_LINKS.match(line):
        return "the build does not have this folder; give it as --wheelhouse of the build"
    package, *options = AFTER_NAME.split(line)
    words = line.split() if line.startswith("-") else options
    if wrong := next((word for word in words if COMMAND_LINE.fullmatch(re.split(r"[\s=]", word)[0])), None):
        return f"pip takes no {wrong} in a file; call `pip install {wrong}` for this package in 'post'"
    place = re.split(r"\s*;|\[|#", package.strip())[0]
    if line.startswith("-") or place.endswith(ARCHIVES) or re.match(r"(git\+)?(https?|ssh)://", place):
        return ""
    if match := OF_CONDA.fullmatch(place):
        return f"this is conda's form; write {match['name']}=={match['version']}"
    if "file:" in place:
        return f"{NO_FOLDER}, or write NAME==VERSION, as `pip list --format=freeze` prints it"
    if place in (".", "..") or ("/" in place and "@" not in place):
        return NO_FOLDER
    return _unreadable(package.strip())


def _unreadable(package: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement  # imported late: few verbs read requirements

    try:
        Requirement(package)
    except InvalidRequirement as error:
        return f"pip cannot read this: {str(error).splitlines()[0]}"
    return ""
