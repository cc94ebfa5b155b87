"""Find the causes of a failed start in a container, before the run is queued. Facts in, findings out.

Here are the rules about this machine, the image's file, and the programs in the image that a run starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torusrun.orchestrator.images.checks import devices
from torusrun.orchestrator.images.checks.answers import OLDEST_PYTHON, OLDEST_RUNTIME, OLDEST_TORCH, version
from torusrun.orchestrator.images.checks.facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.checks.findings import Finding, Wanted, fits, unknown
from torusrun.orchestrator.images.runtime import dotted

ASK_BY_JOB = "the job finds it on its node, or ends; 'container.runtime' of the site can name its path"
RUNS_TOO = {("i686", "x86_64"), ("armv7l", "aarch64")}


def runtime(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """The runtime of this machine; the nodes may have another."""
    own, evidence = host.runtime, host.evidence("runtime")
    if wanted.pyxis:
        yield from _pyxis(wanted, host)
    elif own is None and wanted.cluster:
        what = f"no apptainer or singularity is found on this machine; {ASK_BY_JOB}"
        yield unknown("runtime-missing", what, evidence)
    elif own is None:
        yield Finding("runtime-missing", "neither apptainer nor singularity is found here", evidence=evidence)
    else:
        asked, oldest = f"`{own.command} --version`: {own}", OLDEST_RUNTIME[own.family]
        if own.version < oldest:
            yield Finding("runtime-old", f"{own} is older than {dotted(oldest)}", evidence=asked)
        else:
            yield fits("runtime-old", f"{own} starts images", asked)


def _pyxis(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    asked = f"`{wanted.launcher} --help` was searched for --container-image"
    if host.pyxis is None:
        yield unknown("pyxis-missing", "whether Slurm has Pyxis here", host.evidence("pyxis"))
    elif host.pyxis:
        yield fits("pyxis-missing", "srun has the options of Pyxis", asked)
    else:
        yield Finding("pyxis-missing", "srun has no --container-image: Pyxis is not installed here", evidence=asked)


def modules(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """The site's modules; a login node may lack them."""
    if host.modules_failed:
        what = "the site's modules do not load here, so the runtime and the MPI of a job may differ from those here"
        yield unknown("modules", what, host.modules_failed)


def binds(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """The paths that the site binds must exist here. They rarely exist on the nodes alone."""
    for path in host.missing_paths:
        what = f"{path} is to be bound but does not exist"
        yield Finding("bind-missing", what, evidence=f"{path} was looked for here")
    if not host.missing_paths:
        yield fits("bind-missing", "all that the site binds is there", "this machine's file systems")


def readable(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    if not image.readable:
        evidence = image.evidence("file")
        why = evidence.rpartition(": ")[2]
        yield Finding("image-unreadable", f"{image.path} cannot be read: {why}", evidence=evidence)
    else:
        yield fits("image-unreadable", f"{image.path} can be read", image.evidence("machine"))


def architecture(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """The image's processor compared with the nodes'."""
    evidence = f"{image.evidence('machine')}; {host.evidence('machine')}"
    if image.foreign:  # the header names the processor of the machine that made the SIF
        what = "the image's programs are for another processor than this machine's"
        yield Finding("image-architecture", what, evidence=image.evidence("start"))
    elif image.machine is None or host.machine is None:
        yield unknown("image-architecture", "which processor the image is for: its file does not say it", evidence)
    elif image.machine == host.machine or (image.machine, host.machine) in RUNS_TOO:
        yield fits("image-architecture", f"the image is for {image.machine}, as the nodes' Python", evidence)
    else:
        what = f"the image is for {image.machine}, and the nodes' Python for {host.machine}"
        yield Finding("image-architecture", what, evidence=evidence)


def starts(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    evidence = image.evidence("start")
    if host.runtime is None or image.foreign:
        return  # already reported
    if image.starts:
        yield fits("image-broken", "programs run in the image", evidence)
    elif not image.shell:
        yield unknown("image-broken", "the image has no /bin/sh, which the checks need", evidence)
    elif image.starts is None and wanted.cluster:
        yield unknown("image-broken", "the image does not start on this machine; it may on the nodes", evidence)
    else:
        why = evidence.rpartition(": ")[2].rstrip(".")
        yield Finding("image-broken", f"no program starts in the image: {why}", evidence=evidence)


def shared(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Whether the nodes see the file. Only they know whether this machine exports a local disk to them."""
    evidence = image.evidence("shared")
    if not wanted.cluster:
        return
    if image.shared:
        yield fits("image-not-shared", f"the nodes see {image.path}", evidence)
    elif image.local_folder:
        what = f"{image.path} is in {image.local_folder}, which is different on every node"
        yield Finding("image-not-shared", what, evidence=evidence)
    elif image.shared is False:
        what = f"{image.path} is on a disk of this machine, unless the nodes mount that disk"
        yield Finding("image-not-shared", what, "warning", evidence)
    else:
        yield unknown("image-not-shared", f"whether the nodes see {image.path}", evidence)


def program(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Whether the image has the program that a command names first."""
    if wanted.training:
        return
    evidence = image.evidence("program")
    if image.no_program:
        yield Finding("program-missing", "the command's program is not in the image", evidence=evidence)
    elif image.program:
        yield fits("program-missing", f"the image has {image.program.path}", evidence)
    else:
        yield unknown("program-missing", "whether the image has the command's program", evidence)


def wrapper(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Pyxis starts the ranks' wrapper inside the image, so any image needs a Python."""
    if not wanted.pyxis:
        return
    evidence, needs = image.evidence("python"), f"the wrapper of a rank needs {dotted(OLDEST_PYTHON)} or newer"
    if image.has_python is False:
        yield Finding("pyxis-python", "the image has no python3", evidence=evidence)
    elif not image.python:
        yield unknown("pyxis-python", f"which Python the image has: {needs}", evidence)
    elif version(image.python) < OLDEST_PYTHON:
        yield Finding("pyxis-python", f"Python {image.python} of the image is too old: {needs}", evidence=evidence)
    else:
        yield fits("pyxis-python", f"the image has Python {image.python}: {needs}", evidence)


def python(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """torusrun's training needs a Python that is new enough, with torch; a command needs neither."""
    if not wanted.training:
        return
    evidence = image.evidence("python")
    if image.has_python is False:
        yield Finding("python-missing", "the image has no python3", evidence=evidence)
        return
    if not image.python:
        yield unknown("python-old", "whether the image's Python is new enough", image.evidence("torch"))
        return
    needs = f"torusrun's training needs {dotted(OLDEST_PYTHON)} or newer"
    if version(image.python) < OLDEST_PYTHON:
        yield Finding("python-old", f"Python {image.python} of the image is too old: {needs}", evidence=evidence)
    else:
        yield fits("python-old", f"the image has Python {image.python}: {needs}", evidence)
    yield from _torch(image)
    yield from _training(image)


def _torch(image: ImageFacts) -> Iterator[Finding]:
    evidence = image.evidence("torch")
    if image.torch_error and "No module named 'torch'" in image.torch_error:
        yield Finding("torch-missing", "the image's Python has no torch", evidence=evidence)
    elif image.torch_error:
        yield Finding("torch-broken", f"torch does not import in the image: {image.torch_error}", evidence=evidence)
    elif not image.torch:
        yield unknown("torch-broken", "whether torch imports in the image", evidence)
    elif version(image.torch) < OLDEST_TORCH:
        needs = f"torusrun's training needs {dotted(OLDEST_TORCH)} or newer"
        yield Finding("torch-old", f"torch {image.torch} of the image is too old: {needs}", evidence=evidence)
    else:
        yield fits("torch-old", f"torch {image.torch} imports in the image", evidence)


def _training(image: ImageFacts) -> Iterator[Finding]:
    evidence = image.evidence("training")
    if image.training is False:
        yield Finding("training-missing", "the package 'training' is not found in the image", evidence=evidence)
    elif image.training:
        yield fits("training-missing", "the image's Python finds the package 'training'", evidence)
    else:
        yield unknown("training-missing", "whether the image's Python finds the package 'training'", evidence)


OF_MACHINE_AND_FILE = (runtime, modules, binds, readable, shared)
OF_IMAGE = (
    architecture, starts, program, wrapper, python, devices.cuda, devices.mpi, devices.host_mpi, devices.verbs,
)  # fmt: skip


def check(wanted: Wanted, host: HostFacts, image: ImageFacts) -> list[Finding]:
    """All findings: first mismatches, then unknown results, then matches."""
    wanted = devices.by_its_libraries(wanted, image)
    rules = OF_MACHINE_AND_FILE + (OF_IMAGE if image.readable else ())
    findings = [finding for rule in rules for finding in rule(wanted, host, image)]
    return sorted(findings, key=lambda finding: finding.place)


def refused(findings: Iterable[Finding]) -> bool:
    """Whether a run with these findings must not be submitted."""
    return any(finding.severity == "error" for finding in findings)
