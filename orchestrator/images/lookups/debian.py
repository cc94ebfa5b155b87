"""The packages of a Debian or Ubuntu suite: versions, dependencies and sizes, from the index of a mirror.

The index is only read to report on an image; its signature is not checked. A build installs by apt, which checks it.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.lookups.web import Web, shown

MIRROR = "http://deb.debian.org/debian"  # the source of packages in Debian's own images
# Debian's own names (x86_64 is amd64), as `dpkg --print-architecture` prints them.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "armhf", "ppc64le": "ppc64el", "i686": "i386"}
OF_DEBIAN = re.compile(r"(?:docker\.io/)?(?:library/)?debian:([a-z]+)(?:-slim|-backports|-\d{8}(?:-slim)?)?")


@dataclass(frozen=True)
class DebianPackage:
    """A package of the suite."""

    name: str
    version: str
    size_bytes: int  # of its .deb, which is compressed
    needs: tuple[tuple[str, ...], ...] = ()  # each a choice, of which apt takes the first that exists


@dataclass(frozen=True)
class Suite:
    """The index of a suite: its component main, for one architecture."""

    text: str

    @classmethod
    def fetched(cls, web: Web, mirror: str, suite: str, machine: str) -> Suite:
        """Raises SiteError if the mirror does not have it, or does not answer."""
        architecture = ARCHITECTURES.get(machine, machine)
        url = f"{mirror.rstrip('/')}/dists/{suite}/main/binary-{architecture}/Packages.xz"
        try:
            return cls(lzma.decompress(web.get(url)).decode(errors="replace"))
        except (lzma.LZMAError, EOFError):
            raise SiteError(f"{shown(url)}: this is not an index of packages") from None

    @cached_property
    def _paragraphs(self) -> dict[str, str]:
        parts = self.text.split("\n\n")
        return {part[9:].partition("\n")[0]: part for part in reversed(parts) if part.startswith("Package: ")}

    @cached_property
    def _providers(self) -> dict[str, str]:
        """virtual package: the first package that provides it."""
        found: dict[str, str] = {}
        for name, text in self._paragraphs.items():
            for word in _field(text, "Provides").split(","):
                found.setdefault(word.partition("(")[0].strip(), name)
        return found

    def package(self, name: str) -> DebianPackage | None:
        """A package by its name, or the first that provides it; None if the suite has neither."""
        text = self._paragraphs.get(name) or self._paragraphs.get(self._providers.get(name, ""))
        if text is None:
            return None
        wanted = ", ".join(filter(None, (_field(text, "Pre-Depends"), _field(text, "Depends"))))
        needs = tuple(
            tuple(re.split(r"[ (:\[]", choice.strip())[0] for choice in each.split("|"))
            for each in wanted.split(",")
            if each.strip()
        )
        size = _field(text, "Size")
        return DebianPackage(
            _field(text, "Package"), _field(text, "Version"), int(size) if size.isdecimal() else 0, needs
        )  # fmt: skip

    def base(self) -> dict[str, DebianPackage]:
        """The packages of a minimal system: those that are required, apt, and all that they need."""
        required = [
            n for n, text in self._paragraphs.items() if "\nPriority: required" in text or "\nEssential: y" in text
        ]
        return self.with_needs([*sorted(required), "apt"], {})

    def with_needs(self, names: Iterable[str], present: dict[str, DebianPackage]) -> dict[str, DebianPackage]:
        """The named packages and all that they need, by name, without those that are `present`.

        Recommended packages are left out, as a build does. Names that the suite does not have are left out, too.
        """
        found: dict[str, DebianPackage] = {}
        queue: list[tuple[str, ...]] = [(name,) for name in names]
        for choices in queue:  # the loop appends to it
            known = [each for name in choices if (each := self.package(name))]
            if known and not any(each.name in found or each.name in present for each in known):
                found[known[0].name] = known[0]
                queue += known[0].needs
        return found


def suite_of(reference: str) -> str | None:
    """The suite of an image of Debian's own repository, by its tag: bookworm for debian:bookworm-slim."""
    match = OF_DEBIAN.fullmatch(reference)
    return match[1] if match else None


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{name}: (.*)$", text, re.MULTILINE)
    return match[1] if match else ""
