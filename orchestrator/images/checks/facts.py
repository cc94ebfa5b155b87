"""The facts of a host, found by running their own programs. An unknown fact is None, never a guess."""

from __future__ import annotations

import os
import platform
import pwd
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.checks import compat, probe
from torusrun.orchestrator.images.checks.answers import (
    MpiLibrary,
    parse_glibc,
    parse_gpus,
    parse_mpi,
    parse_pmix,
    parse_probe,
    parse_slurm_pmi,
    parse_slurm_pmix,
)
from torusrun.orchestrator.images.checks.sourced_facts import HostFacts
from torusrun.orchestrator.images.pyxis import is_offered
from torusrun.orchestrator.images.runtime import PREFIXES, Runtime
from torusrun.orchestrator.schedulers import launchers
from torusrun.orchestrator.schedulers.launchers.launcher import Pmi

ASKING_S = 60.0
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader")
HARMLESS = ("CACHEDIR", "TMPDIR", "CONFIGDIR", "DOCKER_USERNAME", "DOCKER_PASSWORD", "AUTHFILE")  # of a build alone


@dataclass
class Asking:
    """Queries of programs on this machine, in one environment; `asked` keeps the queries and the answers."""

    environment: Mapping[str, str] | None = None
    asked: dict[str, str] = field(default_factory=dict)

    def said(self, fact: str, *argv: str) -> str:
        """The output of a program; '' if it is missing, failed or did not answer."""
        question = f"`{' '.join(argv)}`"
        try:
            done = process.run(argv, timeout_s=ASKING_S, environment=self.environment)
        except SiteError as error:
            self.asked[fact] = f"{question}: {error}"
            return ""
        said = done.stdout + done.stderr
        first = next((line.strip() for line in said.splitlines() if line.strip()), "it printed nothing")
        self.asked[fact] = f"{question}: {first}" + (f" (exit code {done.exit_code})" if done.exit_code else "")
        return "" if done.exit_code else said


def host(
    runtime: Runtime | None,
    launcher: str,
    paths: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    pyxis: bool = False,
) -> HostFacts:
    """Query this machine. `launcher` is the site's; `paths` are those that the binds need.

    Programs are searched and run in `environment`, which has the site's modules; default: the current environment.
    """
    asking = Asking(environment)
    pmi = launchers.family(launcher).pmi
    offers = asking.said("slurm_pmi", launcher, "--mpi=list") if pmi is Pmi.SLURM else ""
    mpi = _mpi(asking, launcher) if pmi is Pmi.MPI else None
    helped = asking.said("pyxis", launcher, "--help") if pyxis else ""
    driver, gpus = parse_gpus(asking.said("gpus", *NVIDIA_SMI))
    harmless = {f"{prefix}_{name}" for prefix in PREFIXES for name in HARMLESS}
    return HostFacts(
        runtime=runtime,
        machine=platform.machine(),
        mpi=mpi,
        pyxis=is_offered(helped) if helped else None,
        slurm_pmi=parse_slurm_pmi(offers),
        pmix_served=frozenset({mpi.pmix}) if mpi and mpi.pmix else parse_slurm_pmix(offers),
        driver=driver,
        gpus=gpus,
        glibc=parse_glibc(asking.said("glibc", "ldd", "--version")),
        user_namespaces=_works(asking, "unshare", "--user", "true"),
        fakeroot=_has_subids(),
        missing_paths=tuple(path for path in paths if not os.path.exists(path)),
        shell_variables=tuple(sorted(n for n in os.environ if n.startswith(PREFIXES) and n not in harmless)),
        asked={**asking.asked, "machine": f"`uname -m`: {platform.machine()}"},
    )


def _mpi(asking: Asking, launcher: str) -> MpiLibrary | None:
    """The MPI of the launcher. Only Open MPI's own tool prints its PMIx generation."""
    mpi = parse_mpi(asking.said("mpi", launcher, "--version"))
    if mpi is None or mpi.family != "openmpi":
        return mpi
    embedded = parse_mpi(asking.said("pmix", "ompi_info", "--parsable"))
    if embedded and embedded.version == mpi.version and embedded.pmix:
        return embedded
    probed = asking.said("pmix", *process.script(sys.executable, probe.__file__, "--host"))
    own = parse_pmix(parse_probe(probed).get("pmix"))
    major = (compat.version(mpi.version) or (0,))[0]
    return replace(mpi, pmix=own or compat.OPENMPI_PMIX.get(major))


def _works(asking: Asking, *argv: str) -> bool:
    try:
        return process.run(argv, timeout_s=ASKING_S, environment=asking.environment).exit_code == 0
    except SiteError:
        return False


def _has_subids() -> bool:
    """Whether this user has a range in /etc/subuid and newuidmap to use it."""
    names = {str(os.getuid())}
    try:
        names.add(pwd.getpwuid(os.getuid()).pw_name)
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except (OSError, KeyError):
        return False
    return which("newuidmap") is not None and any(line.split(":")[0] in names for line in lines)
