"""The checks of a site for `doctor`, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import login
from torusrun.orchestrator.sites.checks import images, machine, scheduler
from torusrun.orchestrator.sites.checks.check import Check


def examine(site: Site, *, job: bool = False) -> Iterator[Check]:
    """The checks that need no job: of the scheduler, the folders, the programs, and images.

    With `job`, a job checks whether the nodes see the folders, so nothing is guessed about that here.
    """
    yield from scheduler.checks(site)
    yield from machine.folder_checks(site, job=job)
    here = login(site)
    yield from machine.program_checks(site, here, job=job)
    yield from images.image_checks(site, here)
    if site.software.given:
        yield from images.software_checks(site, Software())
