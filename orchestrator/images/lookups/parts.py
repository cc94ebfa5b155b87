"""The parts of an image before it is built: what the indexes and registries report about each, and what is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.builds import registry
from torusrun.orchestrator.images.definitions import definition
from torusrun.orchestrator.images.definitions.image_keys import Base, ImageFile
from torusrun.orchestrator.images.definitions.inputs import LOCAL, there
from torusrun.orchestrator.images.definitions.requirements import Brought
from torusrun.orchestrator.images.lookups import debian, lines, wheels
from torusrun.orchestrator.images.lookups.debian import DebianPackage, Suite
from torusrun.orchestrator.images.lookups.web import Web

BASE, PACKAGE, WHEEL, SOURCE, BUILD_ONLY = "base", "package", "wheel", "source", "for the build"


@dataclass(frozen=True)
class ImagePart:
    """A part of an image. `open` says what could not be looked up or is not as written; '' if all was found."""

    kind: str
    name: str
    version: str = ""
    size_bytes: int | None = None  # compressed, as it is downloaded
    open: str = ""
    needed: bool = False  # by another part; the image file does not name it


class Lookup:
    """Looks up the parts of one image file, whose relative paths start at `beside`.

    `no_index` says why the indexes are not known; then none is queried.
    """

    def __init__(
        self, image_file: ImageFile, beside: Path, variant: definition.Variant, brought: Brought, machine: str,
        web: Web, indexes: list[str], no_index: str = "",
    ) -> None:  # fmt: skip
        self.image_file, self.beside, self.variant, self.brought = image_file, beside, variant, brought
        self.machine, self.web, self.indexes, self.no_index = machine, web, indexes, no_index
        self._in_base: dict[str, DebianPackage] = {}
        self._suite, self._no_suite = self._fetched()

    def parts(self) -> Iterator[ImagePart]:
        """All parts: the base first, then Debian packages, the MPI's source, and Python packages."""
        yield self.base()
        yield from self.system()
        yield from self.mpi()
        yield from self.python()

    def _fetched(self) -> tuple[Suite | None, str]:
        """(the index of the base's suite, or None; why there is none)."""
        base = self.image_file.base
        suite = base.debootstrap or debian.suite_of(base.docker or "")
        if suite is None:
            return None, "the packages of its base are known only inside it"
        try:
            found = Suite.fetched(self.web, base.mirror or debian.MIRROR, suite, self.machine)
        except SiteError as error:
            return None, str(error)
        self._in_base = found.base()
        return found, ""

    def base(self) -> ImagePart:
        """The base; the size of Debian's own is that of its packages."""
        base: Base = self.image_file.base
        size = sum(package.size_bytes for package in self._in_base.values()) or None
        if local := next((path for kind in LOCAL if (path := getattr(base, kind))), None):
            path = there(self.beside, local, "base")
            return ImagePart(BASE, str(path), "", path.stat().st_size if path.is_file() else None)
        if base.debootstrap:
            return ImagePart(BASE, f"debootstrap {base.debootstrap}", "", size, self._no_suite)
        reference = str(base.docker or base.oras)
        if base.digest:
            return ImagePart(BASE, reference, base.digest, size)
        try:
            return ImagePart(BASE, reference, registry.pinned(reference).partition("@")[2], size)
        except SiteError as error:
            return ImagePart(BASE, reference, "", size, str(error))

    def system(self) -> Iterator[ImagePart]:
        """The Debian packages of the image file, and those that they need."""
        words = definition.system(self.image_file, self.variant, self.brought)
        yield from (self._package(word) for word in words)
        if self._suite:
            names = [word.partition("=")[0] for word in words]
            for package in self._suite.with_needs(names, self._in_base).values():
                if package.name not in names:
                    yield ImagePart(PACKAGE, package.name, package.version, package.size_bytes, needed=True)

    def mpi(self) -> Iterator[ImagePart]:
        """The source of a built MPI, and what only its build needs."""
        mpi = self.image_file.mpi
        if mpi.source != "built" or self.variant.host_mpi:
            return
        try:
            size, why = self.web.length(str(mpi.url)), ""
        except SiteError as error:
            size, why = None, f"{error}; the build compares it with 'mpi.sha256'"
        yield ImagePart(SOURCE, str(mpi.url).rpartition("/")[2], str(mpi.version), size, why)
        yield from (self._package(word, BUILD_ONLY) for word in mpi.system)

    def python(self) -> Iterator[ImagePart]:
        """The Python packages of the image file, and those that they need."""
        target = self._target()
        found = lines.read(self.brought, target)
        yield from (ImagePart(WHEEL, name, open=why) for name, why in found.others.items())
        indexes, no_index = lines.indexes(self.brought, self.indexes)
        no_index = self.no_index or no_index
        if target is None or no_index:
            unknown = "only the base itself contains the version of its Python" if self._suite else self._no_suite
            for one in found.packages:
                yield ImagePart(WHEEL, canonicalize_name(one.name), str(one.specifier), open=no_index or unknown)
            return
        chosen = wheels.resolve(map(str, found.packages), indexes, target, self.web, found.limits)
        named = [canonicalize_name(one.name) for one in found.packages]
        for name in dict.fromkeys([*named, *chosen.wheels, *chosen.missing]):
            wheel, why = chosen.wheels.get(name), chosen.missing.get(name, "")
            version = chosen.stand_ins.get(name) or (str(wheel.version) if wheel else "")
            if wheel and name in chosen.stand_ins:
                why += f"; {name} {wheel.version} is used for the sizes and dependencies"
            yield ImagePart(WHEEL, name, version, wheel.size_bytes if wheel else None, why, name not in named)

    def _target(self) -> wheels.Target | None:
        """The Python of the image: Debian's, unless the base brings its own."""
        python = self._suite.package("python3") if self._suite else None
        number = re.match(r"(\d+)\.(\d+)", python.version) if python else None
        if number is None or self.image_file.python.source == "base":
            return None
        return wheels.Target((int(number[1]), int(number[2])), self.machine)

    def _package(self, word: str, kind: str = PACKAGE) -> ImagePart:
        name, _, version = word.partition("=")
        if self._suite is None:
            return ImagePart(kind, name, version, open=self._no_suite)
        found = self._suite.package(name)
        if found is None:
            return ImagePart(kind, name, version, open="the suite has no such package")
        wanted = version or (str(self.image_file.mpi.version or "") if name == "openmpi-bin" else "")
        differs = bool(wanted) and not found.version.startswith(wanted)
        why = f"the image file says {wanted}, the suite has {found.version}" if differs else ""
        return ImagePart(kind, name, found.version, found.size_bytes, why)
