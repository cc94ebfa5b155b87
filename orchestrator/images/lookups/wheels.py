"""The wheels that pip would install: versions, dependencies and sizes, from the pages of indexes (PEP 503, 658, 691).

Each package gets its newest version that fits what the others ask for. Nothing is tried twice, as pip does if two
packages want what excludes each other: then a package is reported as not found, and pip may find an older set.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.parser import Parser
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.lookups.web import Missing, RemoteFile, Web, shown

PAGE = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
NEWEST_GLIBC = 36  # 2.36 is Debian 12's; wheels for a newer one would not be installed there
MOST_PACKAGES = 500
READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Wheel:
    """A wheel of an index."""

    name: str
    version: Version
    url: str
    size_bytes: int | None = None
    tags: frozenset[Tag] = frozenset()


@dataclass
class WheelSet:
    """The wheels, by name, and what could not be found, with the reason."""

    wheels: dict[str, Wheel] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    stand_ins: dict[str, str] = field(default_factory=dict)  # name: the version that was wanted, if another is here


@dataclass(frozen=True)
class Target:
    """The Python in the image."""

    python: tuple[int, int]
    machine: str = "x86_64"

    def tags(self) -> set[Tag]:
        """The tags of wheels that it installs."""
        new = [f"manylinux_2_{minor}_{self.machine}" for minor in range(NEWEST_GLIBC, 4, -1)]
        old = [f"manylinux{year}_{self.machine}" for year in ("2014", "2010", "1")]
        platforms = [*new, *old, f"linux_{self.machine}"]
        interpreter = f"cp{self.python[0]}{self.python[1]}"
        return {
            *cpython_tags(self.python, platforms=platforms),
            *compatible_tags(self.python, interpreter, platforms),
        }

    def environment(self) -> dict[str, str]:
        """The variables of the conditions in metadata."""
        number = f"{self.python[0]}.{self.python[1]}"
        own = {"python_version": number, "python_full_version": f"{number}.0", "platform_machine": self.machine}
        linux = {"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix"}
        return {**{name: str(value) for name, value in default_environment().items()}, **own, **linux}

    def needs(self, one: Requirement, extras: Iterable[str] = ()) -> bool:
        """Whether the condition of a requirement holds here. Raises SiteError if it cannot be evaluated."""
        try:
            return one.marker is None or any(
                one.marker.evaluate({**self.environment(), "extra": extra}) for extra in ("", *extras)
            )
        except (UndefinedComparison, UndefinedEnvironmentName, InvalidVersion):
            raise SiteError(f"the condition of {str(one)!r} cannot be evaluated") from None


def resolve(
    words: Iterable[str], indexes: Iterable[str], target: Target, web: Web, limits: Iterable[Requirement] = ()
) -> WheelSet:
    """The wheels of these requirements and of all that they need, in versions within the `limits`."""
    resolver = _Resolver(list(indexes), target, web)
    for one in limits:
        resolver.limit(one)
    return resolver.run(words)


class _Resolver:
    def __init__(self, indexes: list[str], target: Target, web: Web) -> None:
        self.indexes, self.web, self.target = indexes, web, target
        self.tags = target.tags()
        self.wanted: dict[str, SpecifierSet] = {}
        self.chosen = WheelSet()

    def limit(self, one: Requirement) -> str:
        """Leave only the versions that this one allows; returns the package's name."""
        name = canonicalize_name(one.name)
        self.wanted[name] = self.wanted.get(name, SpecifierSet()) & one.specifier
        return name

    def run(self, words: Iterable[str]) -> WheelSet:
        queue = [Requirement(word) for word in words]
        seen = set()
        for one in queue:  # the loop appends to it
            if str(one) in seen or len(self.chosen.wheels) > MOST_PACKAGES:
                continue
            seen.add(str(one))
            if wheel := self._choose(one):
                queue += self._needs(wheel, one.extras)
        return self.chosen

    def _choose(self, one: Requirement) -> Wheel | None:
        name = self.limit(one)
        now = self.chosen.wheels.get(name)
        if name in self.chosen.missing or (now and now.version in self.wanted[name]):
            return now
        try:
            wheel = self._newest(name, self.wanted[name])
        except SiteError as error:
            if now is None and (stand_in := self._stand_in(name, str(error))):
                return stand_in
            self.chosen.missing[name] = str(error)
            return now
        self.chosen.wheels[name] = wheel
        return wheel

    def _newest(self, name: str, wanted: SpecifierSet) -> Wheel:
        """Raises SiteError, with the reasons of all indexes, if none has a wheel that fits."""
        found, reasons = [], []
        for index in self.indexes:
            try:
                found += [w for w in self._files(index, name) if w.tags & self.tags]
            except Missing:
                pass
            except SiteError as error:
                reasons.append(str(error))
        fit = list(wanted.filter(wheel.version for wheel in found))
        if not fit:
            reasons += [] if reasons else [f"no index has a wheel of {name}{wanted} for this Python"]
            raise SiteError("; ".join(reasons))
        newest = max(fit)
        best = next(wheel for wheel in found if wheel.version == newest)
        return best if best.size_bytes else replace(best, size_bytes=self.web.length(best.url))

    def _stand_in(self, name: str, why: str) -> Wheel | None:
        """The public version of a build for another CUDA (2.13.0 for 2.13.0+cu126), which is about as large."""
        wanted = self.wanted[name]
        exact = [Version(each.version) for each in wanted if each.operator == "==" and "*" not in each.version]
        if not exact or not (exact[0].local or "").startswith("cu"):
            return None
        try:
            wheel = self._newest(name, SpecifierSet(f"=={exact[0].public}"))
        except SiteError:
            return None
        self.wanted[name] = SpecifierSet()
        self.chosen.missing[name], self.chosen.stand_ins[name] = why, str(exact[0])
        self.chosen.wheels[name] = wheel
        return wheel

    def _needs(self, wheel: Wheel, extras: Iterable[str]) -> Iterator[Requirement]:
        try:
            text = self._metadata(wheel)
        except SiteError as error:
            self.chosen.missing.setdefault(wheel.name, f"its dependencies are not known: {error}")
            return
        for line in Parser().parsestr(text, headersonly=True).get_all("Requires-Dist") or []:
            try:
                one = Requirement(line)
                is_needed = self.target.needs(one, extras)
            except (InvalidRequirement, SiteError) as error:
                why = str(error) if isinstance(error, SiteError) else f"{line!r} is not a requirement"
                self.chosen.missing.setdefault(wheel.name, f"a dependency is not known: {why}")
                continue
            if is_needed:
                yield one

    def _metadata(self, wheel: Wheel) -> str:
        """What a wheel says of itself: from the file beside it (PEP 658), or from inside it."""
        try:
            return self.web.get(f"{wheel.url}.metadata").decode(errors="replace")
        except Missing:
            pass
        if not wheel.size_bytes:
            raise SiteError(f"{shown(wheel.url)}: its size is not known")
        remote = RemoteFile(self.web, wheel.url, wheel.size_bytes)
        try:
            with zipfile.ZipFile(io.BufferedReader(remote, READ_BYTES)) as archive:
                inner = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
                return archive.read(inner).decode(errors="replace")
        except (zipfile.BadZipFile, StopIteration, zlib.error):
            raise SiteError(f"{shown(wheel.url)}: this is not a wheel") from None

    def _files(self, index: str, name: str) -> Iterator[Wheel]:
        page = f"{index.rstrip('/')}/{name}/"
        text = self.web.get(page, PAGE).decode(errors="replace")
        for entry in _entries(text, page):
            if entry.get("yanked"):
                continue
            if (needs := entry.get("requires-python")) and not _fits(str(needs), self.target):
                continue
            file = str(entry["filename"])
            try:
                _, version, _, tags = parse_wheel_filename(file)
                url = urljoin(page, str(entry["url"]))
            except (InvalidWheelFilename, ValueError):
                continue
            size = entry.get("size")
            yield Wheel(name, version, url, size if isinstance(size, int) and size > 0 else None, tags)


def _fits(needs: str, target: Target) -> bool:
    try:
        return SpecifierSet(needs).contains(f"{target.python[0]}.{target.python[1]}.99")
    except ValueError:
        return True


def _entries(text: str, page: str) -> list[Mapping[str, object]]:
    """The files of a page in JSON or HTML."""
    if text.lstrip().startswith("{"):
        try:
            return [e for e in json.loads(text)["files"] if isinstance(e.get("filename"), str) and e.get("url")]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SiteError(f"{shown(page)}: this is not a page of a package index") from None
    links = _PageLinks()
    links.feed(text)
    return links.found


class _PageLinks(HTMLParser):
    """The links of a page in HTML (PEP 503)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Mapping[str, object]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and (url := given.get("href")):
            name = unquote(url.partition("#")[0].partition("?")[0].rpartition("/")[2])
            needs, plain = given.get("data-requires-python"), url.partition("#")[0]
            self.found.append(
                {"filename": name, "url": plain, "requires-python": needs, "yanked": "data-yanked" in given}
            )
