"""Lines of a requirements file that the pip of a build cannot follow, each with what to write in its place.

https://pip.pypa.io/en/stable/reference/requirements-file-format/ describes the lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from torusrun.orchestrator.images.definitions.misfits import LOGIN_MEND, has_login
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.problems import shown

EDITABLE = re.compile(r"(?:-e|--editable)[\s=]*(?P<place>.+)")
FIND_LINKS = re.compile(r"(?:-f|--find-links)[\s=]*(?![\s=]|https?://)")
AFTER_NAME = re.compile(r"\s(?=--?[A-Za-z])")  # between a package and its options
COMMAND_LINE = re.compile(  # options of `pip install` that pip refuses in a file
    r"-U|--upgrade|--user|-t|--target|-q|--quiet|--no-deps|--no-build-isolation|--no-cache-dir|--force-reinstall|"
    r"--break-system-packages|--ignore-installed|-I|--root|--prefix|--no-warn-script-location"
)
SOURCE = re.compile(r"(?:(?P<name>[^\s@;]+)\s*@\s*)?(?P<url>(?:[a-z]+\+)?[a-z]+:\S+|(?:git\+)?git@\S+)(?P<rest>.*)")
OF_CONDA = re.compile(r"(?P<name>[\w.-]+)=(?P<version>[^=\s]+)=[^=\s]+")  # `conda list -e`
WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)-.*\.whl")
ARCHIVE = (".whl", ".tar.gz", ".tar.bz2", ".zip")


def misfits(text: str, beside: Path) -> Iterator[tuple[int, str]]:
    """(number of a line, what is wrong with it and what helps) for a file in the folder `beside`."""
    for number, line in _lines(text):
        if has_login(line):
            yield number, f"the line {LOGIN_MEND}"
        elif line and (help_ := _of_option(line) if line.startswith("-") else _of_package(line, beside)):
            yield number, f"{shown(line)}: {help_}"


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


def _of_option(line: str) -> str:
    if match := EDITABLE.fullmatch(line):
        place = match["place"].strip("'\"")
        egg = re.search(r"[#&]egg=([^&]+)", place)
        if not SOURCE.fullmatch(place) or place.startswith("file:"):
            return _wheel(place)
        url = re.sub(r"egg=[^&]+&?", "", place).rstrip("#&")
        return f"an image takes no editable package; write '{egg[1] + ' @ ' if egg else ''}{url}'"
    if FIND_LINKS.match(line):
        return "the build does not have this folder; give it as --wheelhouse of the build"
    return _not_in_a_file(line.split())


def _of_package(line: str, beside: Path) -> str:
    """What is wrong with a package, a path or a URL, and its options."""
    package, *options = AFTER_NAME.split(line)
    package = package.strip()
    if wrong := _not_in_a_file(options):
        return wrong
    if package[0] in "'\"":
        return "pip takes no quotes here; remove them"
    if match := OF_CONDA.fullmatch(package):
        return f"this is conda's form; write {match['name']}=={match['version']}"
    if match := SOURCE.fullmatch(package):
        return _of_source(match, beside)
    place = re.split(r"\s*;|\[", package)[0]
    if place.endswith(ARCHIVE):
        return ""  # whoever takes in the file says if it does not exist
    if place in (".", "..") or "/" in place:
        return _wheel(place)
    return _unreadable(package)


def _of_source(match: re.Match[str], beside: Path) -> str:
    name, url = match["name"], match["url"].removeprefix("git+")
    if "://" not in url and not url.startswith("file:"):
        host, _, path = url.rpartition("@")[2].partition(":")
        return f"pip takes no such address; write {name + ' @ ' if name else ''}git+https://{host}/{path}"
    if not match["url"].startswith("file:"):
        return _unreadable(match[0]) if name else ""
    path = unquote(url.removeprefix("file:").removeprefix("//").partition("#")[0])
    wheel = WHEEL.fullmatch(Path(path).name)
    if (beside / expanded(path)).exists():
        return "" if path.endswith(ARCHIVE) else _wheel(path)
    exact = f"{wheel['name']}=={wheel['version']}" if wheel else f"{name or 'NAME'}==VERSION"
    return f"there is no {path} here (conda writes such lines); write {exact}, as `pip list --format=freeze` prints it"


def _wheel(place: str) -> str:
    folder = shlex.quote(re.split(r"\[", place.removeprefix("file:").removeprefix("//"))[0])
    return (
        f"the build does not have this folder; make a wheel of it (`pip wheel --no-deps {folder}`) and name the wheel"
    )


def _not_in_a_file(words: list[str]) -> str:
    wrong = next((word for word in words if COMMAND_LINE.fullmatch(re.split(r"[\s=]", word)[0])), None)
    return f"pip takes no {wrong} in a file; call `pip install {wrong}` for this package in 'post'" if wrong else ""


def _unreadable(package: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement  # imported late: few verbs read requirements

    try:
        Requirement(package)
    except InvalidRequirement as error:
        return f"pip cannot read this: {str(error).splitlines()[0]}"
    return ""
