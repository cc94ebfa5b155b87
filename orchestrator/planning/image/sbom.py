"""The packages of an image as a software bill of materials: SPDX 2.3 or CycloneDX 1.5, as JSON."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.images.builds.cache import CachedImage
from torusrun.orchestrator.images.definitions.package_lock import PackageLock

UNKNOWN = "NOASSERTION"  # SPDX's word


@dataclass(frozen=True)
class Part:
    """A package in both formats' terms; `purl` is its package URL, https://github.com/package-url/purl-spec."""

    name: str
    version: str
    purl: str
    sha256: str
    source: str


def spdx(image: CachedImage, lock: PackageLock) -> dict[str, Any]:
    """An SPDX 2.3 document: https://spdx.github.io/spdx-spec/v2.3/."""
    whole = {
        "SPDXID": "SPDXRef-image",
        "name": image.name,
        "versionInfo": image.sha256,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": image.sha256}],
        "primaryPackagePurpose": "CONTAINER",
    }
    packages = [_spdx_package(number, part) for number, part in enumerate(_parts(lock))]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image.name,
        "documentNamespace": f"urn:uuid:{_identity(image)}",
        "creationInfo": {"created": _time(image), "creators": [f"Tool: torusrun-{__version__}"]},
        "packages": [whole, *packages],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
            *(_related("SPDXRef-image", "CONTAINS", package["SPDXID"]) for package in packages),
        ],
    }


def cyclonedx(image: CachedImage, lock: PackageLock) -> dict[str, Any]:
    """A CycloneDX 1.5 document: https://cyclonedx.org/docs/1.5/json/."""
    whole = {
        "type": "container",
        "bom-ref": "image",
        "name": image.name,
        "hashes": [{"alg": "SHA-256", "content": image.sha256}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{_identity(image)}",
        "version": 1,
        "metadata": {
            "timestamp": _time(image),
            "tools": {"components": [{"type": "application", "name": "torusrun", "version": __version__}]},
            "component": whole,
        },
        "components": [_component(part) for part in _parts(lock)],
    }


FORMATS = {"spdx": spdx, "cyclonedx": cyclonedx}


def _parts(lock: PackageLock) -> Iterator[Part]:
    vendor = quote(lock.distribution.partition("-")[0] or "debian")
    for package in lock.system:
        values = {"arch": package.architecture, "distro": lock.distribution}
        qualifiers = "&".join(f"{key}={quote(value)}" for key, value in values.items() if value)
        purl = f"pkg:deb/{vendor}/{quote(package.name)}@{quote(package.version)}"
        yield Part(package.name, package.version, f"{purl}?{qualifiers}" if qualifiers else purl, "", "")
    for python in lock.python:
        name = python.name.lower().replace("_", "-")
        source = f"git+{python.source}@{python.commit}" if python.commit else python.source
        purl = f"pkg:pypi/{quote(name)}@{quote(python.version)}"
        yield Part(python.name, python.version, purl, python.sha256, "" if source.startswith("file:") else source)


def _spdx_package(number: int, part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {
        "SPDXID": f"SPDXRef-package-{number}",
        "name": part.name,
        "versionInfo": part.version,
        "downloadLocation": part.source or UNKNOWN,
        "filesAnalyzed": False,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part.purl}
        ],
    }
    return {**found, "checksums": [{"algorithm": "SHA256", "checksumValue": part.sha256}]} if part.sha256 else found


def _component(part: Part) -> dict[str, Any]:
    found = {"type": "library", "bom-ref": part.purl, "name": part.name, "version": part.version, "purl": part.purl}
    return {**found, "hashes": [{"alg": "SHA-256", "content": part.sha256}]} if part.sha256 else found


def _related(one: str, how: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}


def _identity(image: CachedImage) -> uuid.UUID:
    """A UUID from the image's SHA-256, so that the same image gives the same document."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{image.sha256}")


def _time(image: CachedImage) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(image.built_s))
