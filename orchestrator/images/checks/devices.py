"""Rules about GPUs, InfiniBand and MPI: whether the image's libraries work with the nodes and the launcher.

NCCL needs libibverbs and the adapters' driver. torusrun's own training calls no MPI: a mismatch of MPI is an error for
a program that is linked with MPI, and a warning for a command whose libraries are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torusrun.orchestrator.images.checks.answers import (
    SLURM_PMI,
    MpiLibrary,
    family_of,
    oldest_driver,
    runs_on,
    same_abi,
    version,
)
from torusrun.orchestrator.images.checks.facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.checks.findings import Finding, Severity, Wanted, fits, unknown
from torusrun.orchestrator.images.runtime import dotted
from torusrun.orchestrator.schedulers.launchers import Pmi

NAMED_BY_DRIVER = re.compile("mlx[45]|bnxt_re|irdma|hns|efa")  # mlx5 drives mlx5_0; other names may be anything


def cuda(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """CUDA in torch, torch's kernels, and the nodes' driver."""
    if not wanted.uses_gpus:
        if wanted.training and image.torch:
            yield fits("torch-without-cuda", "the run uses no GPU: any torch works", "'node.gpus' and 'train.device'")
        return
    severity: Severity = "error" if wanted.training else "warning"
    evidence = image.evidence("torch")
    if not image.torch:
        if wanted.training and not image.torch_error and image.has_python is not False:
            yield unknown("torch-without-cuda", "whether torch of the image can use the GPUs", evidence)
        return
    if not image.cuda:
        what = f"torch {image.torch} of the image is built without CUDA, and the site's nodes have GPUs"
        yield Finding("torch-without-cuda", what, severity, evidence)
        return
    yield fits("torch-without-cuda", f"torch {image.torch} of the image is built with CUDA {image.cuda}", evidence)
    yield from _driver(wanted, host, image, severity)
    yield from _architecture(wanted, host, image, severity)


def _driver(wanted: Wanted, host: HostFacts, image: ImageFacts, severity: Severity) -> Iterator[Finding]:
    of_nodes = None if wanted.cluster else host.driver  # a login node may have another driver
    driver, floor = wanted.driver or of_nodes, oldest_driver(version(image.cuda or ""))
    evidence = f"'container.driver' of the site: {driver}" if wanted.driver else host.evidence("gpus")
    if not driver:
        what = f"whether the nodes' driver supports CUDA {image.cuda}: 'container.driver' of the site can name it"
        yield unknown("driver-old", what, evidence)
    elif not floor:
        what = f"whether driver {driver} supports CUDA {image.cuda}, which is not in the table of drivers"
        yield unknown("driver-old", what, evidence)
    elif version(driver) < floor:
        what = f"the driver {driver} is older than {dotted(floor)}, the oldest for CUDA {image.cuda}"
        if version(image.compat) >= floor:
            # From memory: NVIDIA, CUDA compatibility: forward compatibility is for data-centre GPUs alone.
            what += f"; cuda-compat {image.compat} of the image supports data-centre GPUs, if LD_LIBRARY_PATH names it"
            severity = "warning"
        yield Finding("driver-old", what, severity, evidence)
    else:
        yield fits("driver-old", f"the driver {driver} supports CUDA {image.cuda}", evidence)


def _architecture(wanted: Wanted, host: HostFacts, image: ImageFacts, severity: Severity) -> Iterator[Finding]:
    of_nodes = () if wanted.cluster else host.gpus  # a login node may have other GPUs
    gpus, has = wanted.gpus or of_nodes, " ".join(image.architectures)
    named = f"'node.architecture' of the site: {' '.join(gpus)}" if wanted.gpus else host.evidence("gpus")
    evidence = f"{image.evidence('torch')}, kernels for {has or 'unknown'}; {named}"
    if not gpus:
        what = "whether torch has kernels for the nodes' GPUs: 'node.architecture' of the site can name them"
        yield unknown("gpu-architecture", what, evidence)
        return
    if not has:
        yield unknown("gpu-architecture", f"for which GPUs torch {image.torch} of the image has kernels", evidence)
        return
    for gpu in gpus:
        if runs_on(image.architectures, gpu):
            yield fits("gpu-architecture", f"torch {image.torch} has kernels for {gpu}", evidence)
        else:
            what = f"torch {image.torch} of the image has no kernels for {gpu}, only {has}"
            yield Finding("gpu-architecture", what, severity, evidence)


def verbs(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Whether libibverbs loads: else an error if NCCL would cross nodes, a warning if nothing is known to need it."""
    if not wanted.hcas:
        return
    severity: Severity = "error" if wanted.uses_gpus and wanted.nodes > 1 else "warning"
    evidence = f"'node.hcas' of the site: {', '.join(wanted.hcas)}; {image.evidence('verbs')}"
    if wanted.training and not wanted.uses_gpus:
        yield fits("verbs-missing", "the training uses no GPU, and so no InfiniBand", "'node.gpus' and 'train.device'")
    elif image.verbs is None:
        yield unknown("verbs-missing", "whether libibverbs loads in the image", evidence)
    elif not image.verbs:
        why = f" ({image.verbs_error})" if image.verbs_error else ""
        what = f"the nodes have {', '.join(wanted.hcas)}, and libibverbs does not load in the image{why}"
        yield Finding("verbs-missing", what, severity, evidence)
    else:
        yield from _providers(wanted, image, evidence, severity)


def _providers(wanted: Wanted, image: ImageFacts, evidence: str, severity: Severity) -> Iterator[Finding]:
    needed = {match[0] for name in wanted.hcas if (match := NAMED_BY_DRIVER.match(name))}
    has = set(image.providers or ())
    evidence = f"{evidence}; drivers of libibverbs in the image: {' '.join(sorted(has)) or 'none'}"
    lacks = sorted(needed - has) or (["any adapter"] if not has else [])
    if lacks:
        what = f"libibverbs of the image has no driver for {', '.join(lacks)}"
        yield Finding("verbs-missing", what, severity, evidence)
    else:
        yield fits("verbs-missing", "libibverbs loads in the image, with the adapters' driver", evidence)


def mpi(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """The MPI that the program loads: the image's, or the site's, which is bound."""
    if wanted.calls_mpi == "no":
        yield fits("mpi-missing", "torusrun's own training calls no MPI", "the run")
        return
    severity = _severity(wanted)
    if wanted.calls_mpi == "yes" and wanted.pmi is Pmi.NOBODY and wanted.ranks > 1:
        single = f"the launcher {wanted.launcher!r} would start {wanted.ranks} programs of one rank"
        yield Finding("mpi-spawn", f"the program is linked with MPI, and {single}", evidence=image.evidence("program"))
    yield from _offered(wanted, host)
    if not image.starts:
        yield unknown("mpi-missing", "which MPI the image has", image.evidence("start"))
        return
    used, evidence = _used(wanted, host, image)
    if used is None:
        yield from _missing(wanted, image, evidence)
        return
    yield fits("mpi-missing", f"MPI programs find {used} in the image", evidence)
    if wanted.pmi is Pmi.SLURM:
        yield from _slurm(wanted, host, used, evidence, severity)
    elif wanted.pmi is Pmi.MPI:
        yield from _launcher(host, used, evidence, severity)


def _severity(wanted: Wanted) -> Severity:
    return "error" if wanted.calls_mpi == "yes" else "warning"


def _used(wanted: Wanted, host: HostFacts, image: ImageFacts) -> tuple[MpiLibrary | None, str]:
    named = [family_of(library.path) for library in image.bound_mpi] + ([host.mpi.family] if host.mpi else [])
    family = next(filter(None, named), None)
    linked = image.program and image.program.mpi and family_of(image.program.mpi)
    if not wanted.host_mpi or (family and linked and not same_abi(linked, family)):
        return image.mpi, image.evidence("mpi")
    return (MpiLibrary(family, "") if image.bound_mpi and family else None), image.evidence("bound")


def _missing(wanted: Wanted, image: ImageFacts, evidence: str) -> Iterator[Finding]:
    lacks = [name for name in (image.program.missing if image.program else ()) if family_of(name)]
    if lacks:
        what = f"the program needs {lacks[0]}, which the image does not have"
        yield Finding("mpi-missing", what, evidence=image.evidence("program"))
    elif wanted.host_mpi:
        yield Finding("mpi-missing", f"no libmpi.so is found in the image at {wanted.host_mpi}", "warning", evidence)
    elif wanted.calls_mpi == "yes":  # the program brings its own library
        yield unknown("mpi-missing", "which MPI the program is linked with", image.evidence("program"))
    else:
        yield fits("mpi-missing", "the image has no MPI, and the command is not known to call one", evidence)


def _offered(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    """srun must offer the PMI of the site's launcher_args, for every program."""
    asked, offers = wanted.srun_mpi, host.slurm_pmi
    if wanted.pmi is not Pmi.SLURM or not asked or offers is None:
        return
    if asked not in offers:
        has = ", ".join(sorted(offers)) or "nothing"
        what = f"'launcher_args' has --mpi={asked}, which this Slurm does not offer, only {has}"
        yield Finding("slurm-pmi", what, "error", host.evidence("slurm_pmi"))


def _slurm(wanted: Wanted, host: HostFacts, used: MpiLibrary, evidence: str, severity: Severity) -> Iterator[Finding]:
    offers, needs = host.slurm_pmi, SLURM_PMI[used.family]
    both = f"{evidence}; {host.evidence('slurm_pmi')}"
    words = " or ".join(sorted(needs))
    if offers is None:
        yield unknown("slurm-pmi", f"whether srun offers {words}, which {used} needs", both)
    elif not (fitting := {name for name in offers if name.partition("_v")[0] in needs}):
        has = ", ".join(sorted(offers)) or "nothing"
        yield Finding("slurm-pmi", f"{used} of the image needs {words} of srun, which offers {has}", severity, both)
    elif not wanted.srun_mpi:
        first = max(needs & offers or fitting)
        what = f"whether srun takes {words} by itself: 'launcher_args: [--mpi={first}]' of the site sets it"
        yield unknown("slurm-pmi", what, both)
    elif wanted.srun_mpi.partition("_v")[0] not in needs and wanted.srun_mpi in offers:
        what = f"{used} of the image needs {words} of srun, and 'launcher_args' has --mpi={wanted.srun_mpi}"
        yield Finding("slurm-pmi", what, severity, both)
    elif wanted.srun_mpi in offers:
        yield fits("slurm-pmi", f"srun offers {wanted.srun_mpi}, which {used} supports", both)


def _launcher(host: HostFacts, used: MpiLibrary, evidence: str, severity: Severity) -> Iterator[Finding]:
    both = f"{evidence}; {host.evidence('mpi')}"
    if host.mpi is None:
        yield unknown("mpi-family", f"whether the site's launcher starts programs of {used}", both)
        return
    if not same_abi(host.mpi.family, used.family):
        yield Finding("mpi-family", f"the host's MPI is {host.mpi}, the image's {used}", severity, both)
        return
    yield fits("mpi-family", f"{host.mpi} of the host starts programs of {used}", both)
    if used.family != "openmpi" or not used.version:
        return
    if version(host.mpi.version)[:1] != version(used.version)[:1]:
        what = f"the host has {host.mpi}, the image {used.version}"
        yield Finding("mpi-major", what, severity, both)
    else:
        yield fits("mpi-major", f"host and image have Open MPI {version(used.version)[0]}", both)


def by_its_libraries(wanted: Wanted, image: ImageFacts) -> Wanted:
    """The same run, which calls MPI for certain if its program is linked with one."""
    linked = image.program and (image.program.mpi or any(map(family_of, image.program.missing)))
    return replace(wanted, calls_mpi="yes") if linked and wanted.calls_mpi == "maybe" else wanted


def host_mpi(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Whether the MPI that a site binds loads: its libraries are in the image, and glibc is new enough for them."""
    kind, evidence = "host-mpi-libraries", f"{image.evidence('bound')}; glibc {image.glibc or 'unknown'} in the image"
    for library in image.bound_mpi:
        needs = [*library.missing, *([f"glibc {max(library.glibc, key=version)}"] if library.glibc else [])]
        if needs:
            what = f"{library.path}, which the site binds, needs {', '.join(needs)}, not found in the image"
            yield Finding(kind, what, _severity(wanted), evidence)
        elif library.error:
            yield unknown(kind, f"whether {library.path} loads in the image", evidence)
        else:
            yield fits(kind, f"{library.path} finds all that it needs in the image", evidence)
    if wanted.host_mpi and not image.starts:
        yield unknown(kind, "whether the host's MPI loads in the image", image.evidence("start"))
