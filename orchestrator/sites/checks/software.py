"""Checks of the software that a site or a run activates without a container: Python, PyTorch, CUDA and MPI in it.

It is activated in a shell of this machine, with the modules of the site. `setup` is not run: it is for the nodes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.checks import probe
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.software import Software
from torusrun.orchestrator.run.image.login import login
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, version_line, warning

ASKING_S = 120.0
MEND = "correct 'environment'"


def checks(site: Site, software: Software) -> Iterator[Check]:
    """The checks of the software of a site and of a run together."""
    here = login(site, software)
    if here.modules_failed:
        yield failed("environment", here.modules_failed, f"{MEND}, or 'modules' of the site")
        return
    python = which("python", "python3", environment=here.environment)
    if python is None:
        yield failed("environment", "it has no python on PATH", MEND)
        return
    try:
        text = Path(probe.__file__).read_text(encoding="utf-8")
        said = process.run(process.program(python, text), timeout_s=ASKING_S, environment=here.environment).stdout
    except SiteError as error:
        yield failed("environment", str(error), MEND)
        return
    match = re.search(r"^TORUSRUN-PROBE (\{.*\})$", said, re.MULTILINE)
    if not match:
        yield failed("environment", f"{python} does not start, or prints something else", MEND)
        return
    found = ast.literal_eval(match[1])
    yield ok("environment", f"{python}: Python {found['python']}")
    yield _torch(site, found)
    mpi = which("mpirun", "mpiexec", environment=here.environment)
    yield ok(
        "MPI", f"{mpi}: {_version(mpi, here.environment)}" if mpi else "no mpirun on PATH: programs cannot call MPI"
    )


def _torch(site: Site, found: dict[str, object]) -> Check:
    if "torch" not in found:
        said = f"torch cannot be imported: {found.get('torch_error', 'it is not there')}"
        return warning("PyTorch", said, "install torch there, unless the programs need none")
    cuda, kernels = found.get("cuda"), found.get("architectures")
    said = f"torch {found['torch']}, {f'CUDA {cuda}' if cuda else 'without CUDA'}"
    wanted = site.node.architecture
    if site.node.gpus and not cuda and not (wanted or "").startswith("gfx"):
        return failed("PyTorch", f"{said}, and the site's nodes have GPUs", "install a torch that is built for CUDA")
    if cuda and wanted and isinstance(kernels, list) and wanted not in kernels:
        return failed("PyTorch", f"{said}, without kernels for {wanted}", "install a torch that is built for it")
    return ok("PyTorch", said)


def _version(program: str, environment: Mapping[str, str]) -> str:
    try:
        return version_line(process.run([program, "--version"], timeout_s=ASKING_S, environment=environment).stdout)
    except SiteError as error:
        return str(error)
