"""Find the causes of a failed start in a container, before the run is queued. Facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterable

from torusrun.orchestrator.images.checks.facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.checks.findings import Finding, Wanted
from torusrun.orchestrator.images.checks.rules import devices, machine
from torusrun.orchestrator.images.definitions.image_file import ImageFile

OF_MACHINE = (machine.runtime, machine.modules, machine.shell_variables, machine.binds)
OF_FILE = (machine.readable, machine.shared)
OF_IMAGE = (
    machine.architecture,
    machine.starts,
    machine.program,
    machine.wrapper,
    machine.python,
    devices.cuda,
    devices.mpi,
    devices.host_mpi,
    devices.verbs,
)


def check(
    wanted: Wanted, host: HostFacts, image: ImageFacts | None, image_file: ImageFile | None = None
) -> list[Finding]:
    """All findings: first mismatches, then unknown results, then matches.

    Without an image, only the checks that need none.
    """
    found = [finding for rule in OF_MACHINE for finding in rule(wanted, host)]
    found += machine.image_file(image_file) if image_file else []
    if image:
        wanted = devices.by_its_libraries(wanted, image)
        rules = OF_FILE + (OF_IMAGE if image.readable else ())
        found += [finding for rule in rules for finding in rule(wanted, host, image)]
    return sorted(found, key=lambda finding: finding.place)


def refused(findings: Iterable[Finding]) -> bool:
    """Whether a run with these findings must not be submitted."""
    return any(finding.severity == "error" for finding in findings)
