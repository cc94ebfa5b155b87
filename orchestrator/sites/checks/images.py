"""Checks of the images of a site, and of the software that a site or a run activates without a container.

It is activated in a shell of this machine, with the modules of the site. `setup` is not run: it is for the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.images.checks import facts, probe
from torusrun.orchestrator.images.checks.answers import parse_probe
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.image.login import Login, login
from torusrun.orchestrator.sites.checks.check import Check, failed, ok, version_line, warning

SUBIDS = "ask the administrators for a range in /etc/subuid and /etc/subgid and for newuidmap"
ASKING_S = 120.0
MEND = "correct 'environment'"


def image_checks(site: Site, login: Login) -> Iterator[Check]:
    """The checks of the runtime, of the method of building, and of the folder of images."""
    runtime = login.runtime
    by_pyxis = pyxis.used(site.container.runtime)
    if by_pyxis:
        yield _pyxis(site, login)
    if runtime is None and by_pyxis:
        yield ok("image builds", "none here without apptainer; images of registries and .sqsh files need none")
    elif runtime is None:
        mend = "load its module (modules of the site), or write container.runtime; runs without an image need none"
        yield warning("container runtime", login.asked, mend)
        return
    else:
        yield ok("image builds" if by_pyxis else "container runtime", f"{runtime}: {login.asked}")
        yield _build(site, login)
    folder = absolute(site.container.cache)
    try:
        private.check_makable(folder)
        yield ok("images", f"{folder} keeps them")
    except SiteError as error:
        yield failed("images", str(error), "write container.cache: FOLDER into the site")


def _pyxis(site: Site, login: Login) -> Check:
    host = facts.host(None, site.launcher or "srun", (), login.environment, pyxis=True)
    if host.pyxis:
        return ok("container runtime", "srun has the options of Pyxis")
    if host.pyxis is None:
        finding, mend = "srun did not say whether it has Pyxis", "run `srun --help` to see why"
    else:
        finding, mend = "srun has no --container-image", "ask the administrators for Pyxis, or name another runtime"
    return warning("container runtime", f"{finding}, and container.runtime is pyxis", mend)


def _build(site: Site, login: Login) -> Check:
    """Whether a user can build on this machine in the site's way."""
    mode, where = site.container.build, site.container.build_on
    if where == "job":
        return ok("image builds", f"{mode}, in a job: the first build shows whether it works")
    assert login.runtime
    host = facts.host(login.runtime, "spawn", (), login.environment)
    other = "write container.build_on: job, if the nodes allow it"
    if mode == "fakeroot" and not login.runtime.has("--fakeroot"):
        return failed("image builds", f"{login.runtime} has no --fakeroot", "build elsewhere and copy the image")
    if mode == "fakeroot" and not host.fakeroot:
        instead = "write container.build: userns, or " if host.user_namespaces else ""
        finding = "fakeroot: you have no range in /etc/subuid, or newuidmap is missing"
        return warning("image builds", finding, f"{instead}{other}, or {SUBIDS}")
    if mode in ("fakeroot", "userns") and not host.user_namespaces:
        finding = f"{mode}: `unshare --user true` fails, so there are no user namespaces for you"
        return warning("image builds", finding, f"{other}, or build elsewhere and copy the image")
    return ok("image builds", f"{mode}: what it needs is here")


def software_checks(site: Site, software: Software) -> Iterator[Check]:
    """The checks of the software of a site and of a run together."""
    here = login(site, software)
    if here.modules_failed:
        yield failed("environment", here.modules_failed, f"{MEND}, or that of the site")
        return
    python = which("python", "python3", environment=here.environment)
    if python is None:
        yield failed("environment", "it has no python on PATH", MEND)
        return
    try:
        text = Path(probe.__file__).read_text(encoding="utf-8")
        ended = process.run(process.program(python, text), timeout_s=ASKING_S, environment=here.environment)
    except SiteError as error:
        yield failed("environment", str(error), MEND)
        return
    if not (answer := parse_probe(ended.stdout)):
        yield failed("environment", f"{python} does not start, or prints something else", MEND)
        return
    yield ok("environment", f"{python}: Python {answer['python']}")
    yield _torch(site, answer)
    mpi = which("mpirun", "mpiexec", environment=here.environment)
    version = f"{mpi}: {_version(mpi, here.environment)}" if mpi else "no mpirun on PATH: programs cannot call MPI"
    yield ok("MPI", version)


def _torch(site: Site, answer: Mapping[str, object]) -> Check:
    if "torch" not in answer:
        finding = f"torch cannot be imported: {answer.get('torch_error', 'it is not there')}"
        return warning("PyTorch", finding, "install torch there, unless the programs need none")
    cuda, kernels = answer.get("cuda"), answer.get("architectures")
    finding = f"torch {answer['torch']}, {f'CUDA {cuda}' if cuda else 'without CUDA'}"
    wanted = site.node.architecture
    if site.gpus and not cuda and not (wanted or "").startswith("gfx"):
        return failed("PyTorch", f"{finding}, and the site's nodes have GPUs", "install a torch that is built for CUDA")
    if cuda and wanted and isinstance(kernels, list) and wanted not in kernels:
        return failed("PyTorch", f"{finding}, without kernels for {wanted}", "install a torch that is built for it")
    return ok("PyTorch", finding)


def _version(program: str, environment: Mapping[str, str]) -> str:
    try:
        return version_line(process.run([program, "--version"], timeout_s=ASKING_S, environment=environment).stdout)
    except SiteError as error:
        return str(error)
