"""What the lines of an image file's requirements say: packages, limits of versions, and indexes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.definitions.requirements import INCLUDE, Brought
from torusrun.orchestrator.images.lookups.web import shown, without_tokens
from torusrun.orchestrator.images.lookups.wheels import Target

INDEX = re.compile(r"(?:^|\s)(-i|--index-url|--pypi-url|--extra-index-url|--no-index)[\s=]*(\S*)")
LOGIN = re.compile(r"//[^/\s]*@")
IN_NO_INDEX = "it is in no index"


@dataclass
class PipLines:
    """The packages that an index can have, and the limits of `-c`; why all else cannot be looked up, by name."""

    packages: list[Requirement] = field(default_factory=list)
    limits: list[Requirement] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)


def read(brought: Brought, target: Target | None) -> PipLines:
    """All lines whose conditions hold for the `target`; without one, all lines."""
    found = PipLines(others={path.name: IN_NO_INDEX for _, path in brought.archives})
    for one in _requirements((*brought.words, *_of_files(brought, limits=False)), target, found.others):
        if one.url is None:
            found.packages.append(one)
        elif not one.url.startswith("file:"):  # that is one of the archives
            found.others[_shown(f"{one.name} @ {one.url}")] = IN_NO_INDEX
    found.limits += _requirements(_of_files(brought, limits=True), target, found.others)
    for file in _included(brought):
        if "://" in file[2]:
            found.others[shown(file[2])] = "only the build reads this file"
    return found


def indexes(brought: Brought, before: list[str]) -> tuple[list[str], str]:
    """(the indexes `before` with those of the requirements files, as pip has them; why they are not known, or '')."""
    found = before
    for _, text in brought.texts:
        for line in text.splitlines():
            for option, url in INDEX.findall(line) if line.lstrip().startswith("-") else ():
                if option == "--no-index":
                    return [], "the requirements have --no-index"
                if "${" in url:
                    return [], f"the index {shown(url)} has a variable, which is known only in the build"
                found = [*(found if option == "--extra-index-url" else []), url]
    return found, ""


def _shown(word: str) -> str:
    """A requirement for a message: a URL in it without its login and its tokens."""
    return without_tokens(LOGIN.sub("//", word))


def _requirements(lines: Iterable[str], target: Target | None, others: dict[str, str]) -> Iterator[Requirement]:
    """Those whose conditions hold; what cannot be read is added to `others`."""
    for line in lines:
        word = re.split(r"(?:^|\s)#|\s--", line)[0].strip(" \\\t\r")
        if not word or word.startswith(("-", "/", "file:")):  # an option, or an archive
            continue
        try:
            one = Requirement(word)
            if target is None or target.needs(one):
                yield one
        except InvalidRequirement:
            others[_shown(word)] = IN_NO_INDEX if "://" in word else "this requirement cannot be parsed"
        except SiteError as error:
            others[word] = str(error)


def _of_files(brought: Brought, limits: bool) -> Iterator[str]:
    """The lines of the requirements files; with `limits`, those of the files that only -c names."""
    required = {file[2] for file in _included(brought) if file[1].lstrip().startswith(("-r", "--r"))}
    for number, (_, text) in enumerate(brought.texts):
        if limits == (number > 0 and f"{number}.txt" not in required):
            yield from re.sub(r"(?m)^([^#\n]*)\\\r?\n", r"\1 ", text).splitlines()


def _included(brought: Brought) -> Iterator[re.Match[str]]:
    """The -r and -c of all files; a file that the build has is named by its number."""
    for _, text in brought.texts:
        yield from filter(None, (INCLUDE.fullmatch(line) for line in text.splitlines()))
