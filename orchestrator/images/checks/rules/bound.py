"""Whether the MPI that a site binds loads in the image: its libraries exist there, and glibc is new enough for them."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.images.checks.answers import Library
from orchestrator.images.checks.compat import version
from orchestrator.images.checks.findings import Finding, Severity, fits, unknown
from orchestrator.images.checks.needs import Wanted
from orchestrator.images.checks.sourced_facts import HostFacts, ImageFacts


def host_mpi(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    severity: Severity = "error" if wanted.calls_mpi == "yes" else "warning"
    for library in image.bound_mpi:
        yield from _loads(library, host, image, severity)
    if wanted.host_mpi and not image.starts:
        yield unknown("host-mpi-libraries", "whether the host's MPI loads in the image", image.evidence("start"))


def _loads(library: Library, host: HostFacts, image: ImageFacts, severity: Severity) -> Iterator[Finding]:
    evidence = image.evidence("bound")
    if library.missing:
        what = f"{library.path}, which the site binds, needs {', '.join(library.missing)}, not found in the image"
        yield Finding("host-mpi-libraries", what, severity, evidence)
    elif library.error:
        yield unknown("host-mpi-libraries", f"whether {library.path} loads in the image", evidence)
    else:
        yield fits("host-mpi-libraries", f"{library.path} finds all its libraries in the image", evidence)
    glibcs = f"glibc {image.glibc or 'unknown'} in the image, {host.glibc or 'unknown'} on this machine"
    if library.glibc:
        newest = max(library.glibc, key=version)
        what = f"{library.path} needs glibc {newest}, and the image has {image.glibc or 'an older one'}"
        yield Finding("glibc-old", what, severity, f"{evidence}; {glibcs}")
    elif not library.error:
        yield fits(
            "glibc-old",
            f"glibc {image.glibc or ''} of the image is new enough for the host's MPI",
            f"{evidence}; {glibcs}",
        )
    elif image.glibc and host.glibc and version(image.glibc) < version(host.glibc):
        what = f"glibc {image.glibc} of the image is older than the host's {host.glibc}"
        yield Finding("glibc-old", what, "warning", f"{evidence}; {glibcs}")
    else:
        yield unknown(
            "glibc-old", "whether glibc of the image is new enough for the host's MPI", f"{evidence}; {glibcs}"
        )
