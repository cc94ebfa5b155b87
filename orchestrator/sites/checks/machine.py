"""Checks from this machine: the folders of a site, the nodes' Python, the modules and the launcher."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.images.shared import kind_of, seen_by_others
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import Login
from torusrun.orchestrator.schedulers.launchers import ASKED, KNOWN, family, named
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, version_line, warning

LEAST_BYTES, FEW_BYTES = 100 * 2**20, 10 * 2**30
LEAST_INODES, FEW_INODES = 1_000, 100_000
ASKING_S = 60.0
OLDEST = (3, 10)
PROBE = (
    "import importlib.util as u, sys, yaml, jinja2; "
    "print(u.find_spec('torch') is not None, '%d.%d' % sys.version_info[:2])"
)


def folder_checks(site: Site, *, job: bool) -> Iterator[Check]:
    """The check of the folder of runs, then of its free space. With `job`, a job checks whether the nodes see it."""
    folder = absolute(site.runs)
    made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        private.make(folder, site.umask)
        probe = folder / f".doctor.{os.getpid()}"
        private.write_bytes(probe, b"torusrun doctor\n")
        probe.unlink()
        checks = [_seen(site, folder, job), _room(folder)]
    except (OSError, SiteError) as error:
        why = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        checks = [failed("runs folder", why, "fix that, or write runs: FOLDER into the site, one that you can write")]
    for each in made:
        with suppress(OSError):
            each.rmdir()
    yield from checks


def _seen(site: Site, folder: Path, job: bool) -> Check:
    kind = kind_of(folder)
    if job or schedulers.get(site.scheduler).traits.one_machine or seen_by_others(kind):
        return ok("runs folder", f"{folder} can be written ({kind or 'a file system that does not say its type'})")
    finding = f"{folder} can be written, but {kind or 'its file system'} does not show that the nodes see it"
    return warning("runs folder", finding, "try doctor --job; if they do not, write runs: FOLDER on a shared disk")


def _room(folder: Path) -> Check:
    status = os.statvfs(folder)
    free_bytes, inodes = status.f_bavail * status.f_frsize, status.f_favail
    finding = f"{free_bytes / 2**30:.1f} GiB and {inodes} files are free"
    mend = "remove old runs or images, or write runs: FOLDER of another disk into the site"
    counted = status.f_files > 0  # some file systems do not count files
    if free_bytes < LEAST_BYTES or (counted and inodes < LEAST_INODES):
        return failed("free space", finding, mend)
    if free_bytes < FEW_BYTES or (counted and inodes < FEW_INODES):
        return warning("free space", finding, mend)
    return ok("free space", finding)


def program_checks(site: Site, login: Login, *, job: bool) -> Iterator[Check]:
    """The checks of Python, modules and launcher. With `job`, a job checks whether the nodes have Python."""
    yield from _python(site, job)
    if site.software.modules or site.software.purge:
        if login.modules_failed:
            mend = "`module avail` lists them: correct environment.modules of the site"
            yield failed("modules", login.modules_failed, mend)
        else:
            yield ok("modules", f"{', '.join(site.software.modules) or 'none'} load")
    yield _launcher(site, login)


def _python(site: Site, job: bool) -> Iterator[Check]:
    python = site.interpreter
    mend = "write python: PATH into the site, of a Python of 3.10 or newer into which torusrun was installed"
    try:
        done = process.run(process.program(python, PROBE), timeout_s=ASKING_S)
    except SiteError as error:
        yield failed("python", str(error), mend)
        return
    if done.exit_code:
        yield failed("python", f"{python}: {(done.stderr.strip() or 'it said nothing').splitlines()[-1].strip()}", mend)
        return
    answer = re.search(r"^(True|False) (\d+)\.(\d+)$", done.stdout, re.MULTILINE)
    if answer is None:
        yield failed("python", f"{python} is not a Python: it printed {done.stdout[:80]!r}", mend)
        return
    has_torch, *number = answer.groups()
    finding = f"{python}: Python {'.'.join(number)}"
    if tuple(map(int, number)) < OLDEST:
        yield failed("python", finding, mend)
    elif has_torch != "True":
        yield warning("python", f"{finding}, without PyTorch", "install torch there, unless all runs have an image")
    else:
        yield ok("python", f"{finding}, with PyTorch")
    if not job and not schedulers.get(site.scheduler).traits.one_machine and (own := _own_disk(python)):
        finding = f"{own} is on a disk that perhaps only this machine has"
        yield warning("python", finding, "try doctor --job; if the nodes lack it, install torusrun on a shared disk")


def _own_disk(python: str) -> Path | None:
    """The path of Python or torusrun that is on a file system which is not known to be shared, or None."""
    places = (Path(python), ROOT)
    return next((place for place in places if not seen_by_others(kind_of(place))), None)


def _launcher(site: Site, login: Login) -> Check:
    program = site.launcher
    if family(program).built_in:
        return ok("launcher", f"{program} starts the ranks itself")
    path = which(program, environment=login.environment)
    mend = "write into the site the module that brings it (modules), or another launcher"
    if path is None:
        outcome = failed if program in KNOWN else warning  # an MPI may be only on the nodes
        return outcome("launcher", f"{program}: not found on PATH here", f"{mend}; doctor --job tries it on a node")
    if program not in ASKED:
        return ok("launcher", path)
    try:
        version = process.run([path, "--version"], timeout_s=ASKING_S, environment=login.environment).stdout
        launcher = named(program, version)
    except SiteError as error:
        return failed("launcher", str(error), mend)
    return ok("launcher", f"{path}: {type(launcher).__name__}, {version_line(version)}")
