"""Checks whether the folders of runs and of images are writable, have room, and are likely shared with the nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, warning
from torusrun.orchestrator.sites.machine import file_system, is_shared

LEAST_BYTES, FEW_BYTES = 100 * 2**20, 10 * 2**30
LEAST_INODES, FEW_INODES = 1_000, 100_000


def checks(site: Site, *, job: bool) -> Iterator[Check]:
    """The check of the folder of runs, then of its free space. With `job`, a job checks whether the nodes see it."""
    folder = absolute(site.runs)
    made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        private.make(folder, site.umask)
        _try(folder)
        found = [_seen(site, folder, job), _room(folder)]
    except (OSError, SiteError) as error:
        why = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        found = [failed("runs folder", why, "fix that, or write runs: FOLDER into the site, one that you can write")]
    for each in made:
        with suppress(OSError):
            each.rmdir()
    yield from found


def _try(folder: Path) -> None:
    """Write a file there and remove it. Raises OSError if that fails."""
    probe = folder / f".doctor.{os.getpid()}"
    private.write_bytes(probe, b"torusrun doctor\n")
    probe.unlink()


def _seen(site: Site, folder: Path, job: bool) -> Check:
    kind = file_system(folder)
    if job or schedulers.get(site.scheduler).traits.one_machine or is_shared(kind):
        return ok("runs folder", f"{folder} can be written ({kind or 'a file system that does not say its type'})")
    said = f"{folder} can be written, but {kind or 'its file system'} does not show that the nodes see it"
    return warning("runs folder", said, "try doctor --job; if they do not, write runs: FOLDER on a shared disk")


def _room(folder: Path) -> Check:
    found = os.statvfs(folder)
    free_bytes, inodes = found.f_bavail * found.f_frsize, found.f_favail
    said = f"{free_bytes / 2**30:.1f} GiB and {inodes} files are free"
    mend = "remove old runs or images, or write runs: FOLDER of another disk into the site"
    counted = found.f_files > 0  # some file systems do not count files
    if free_bytes < LEAST_BYTES or (counted and inodes < LEAST_INODES):
        return failed("free space", said, mend)
    if free_bytes < FEW_BYTES or (counted and inodes < FEW_INODES):
        return warning("free space", said, mend)
    return ok("free space", said)
