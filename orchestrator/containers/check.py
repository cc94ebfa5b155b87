"""Find what would fail when a run starts in its container, before it is queued. Facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.containers.compat import OLDEST_RUNTIME, PMIX_MEETS, oldest_driver, runs_on, version
from orchestrator.containers.facts import HostFacts, ImageFacts
from orchestrator.containers.findings import Finding, Severity
from orchestrator.containers.image_file import ImageFile


@dataclass(frozen=True)
class Wanted:
    """What a run asks of its image and of the site."""

    mpi: bool = False  # the program in the image calls MPI; torusrun's own training does not
    host_mpi: bool = False  # the site's MPI is bound into the image
    gpus: tuple[str, ...] = ()  # architectures of the site's GPUs, where the login node has none to ask
    driver: str | None = None  # the nodes' driver, likewise
    training: bool = True
    builds: bool = False  # the image is still to be built on this machine
    fakeroot: bool = True  # by --fakeroot
    sha256: str | None = None  # the image that the run was submitted with


def check(
    wanted: Wanted, host: HostFacts, image: ImageFacts | None, image_file: ImageFile | None = None
) -> list[Finding]:
    """Everything that does not fit, errors first. Without an image only what is known before it is built."""
    found = [*_runtime(wanted, host), *_paths(host), *(_image_file(image_file) if image_file else [])]
    if image:
        found += _image(wanted, image)
        if image.readable:
            found += [*_gpu(wanted, host, image), *_mpi(wanted, host, image), *_software(wanted, host, image)]
    return sorted(found, key=lambda finding: finding.severity)


def refused(findings: Iterable[Finding]) -> bool:
    """Whether a run with these findings should not be submitted."""
    return any(finding.severity == "error" for finding in findings)


def _runtime(wanted: Wanted, host: HostFacts) -> Iterator[Finding]:
    runtime = host.runtime
    if runtime is None:
        yield Finding("runtime-missing", "neither apptainer nor singularity is found here")
        return
    if runtime.version < (oldest := OLDEST_RUNTIME[runtime.family]):
        yield Finding("runtime-old", f"{runtime} is older than {_dotted(oldest)}")
    if wanted.builds and wanted.fakeroot and not (host.fakeroot and runtime.has_fakeroot):
        yield Finding("no-fakeroot", "you cannot use --fakeroot on this machine")
    if wanted.builds and not host.user_namespaces:
        yield Finding("no-user-namespaces", "user namespaces are switched off here")


def _paths(host: HostFacts) -> Iterator[Finding]:
    for path in host.missing_paths:
        yield Finding("bind-missing", f"{path} is to be bound but does not exist")


def _image_file(image_file: ImageFile) -> Iterator[Finding]:
    if image_file.base.docker and not image_file.base.digest:
        yield Finding("base-without-digest", f"the base {image_file.base.docker} is named without a digest", "warning")


def _image(wanted: Wanted, image: ImageFacts) -> Iterator[Finding]:
    if not image.readable:
        yield Finding("image-unreadable", f"{image.path} cannot be used: {image.unreadable_because}")
    if not image.shared:
        yield Finding("image-not-shared", f"{image.path} is not on a file system that the nodes share")
    if wanted.sha256 and image.sha256 and wanted.sha256 != image.sha256:
        other = f"its SHA-256 is {image.sha256[:12]}, and was {wanted.sha256[:12]}"
        yield Finding("digest-changed", f"{image.path} is not the image of this run: {other}")


def _gpu(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    driver, gpus = wanted.driver or host.driver, wanted.gpus or host.gpus
    floor = oldest_driver(version(image.cuda or ""))
    if driver and floor and version(driver) < floor:
        yield Finding("driver-old", f"the driver {driver} is older than {_dotted(floor)}, CUDA {image.cuda}'s oldest")
    if gpus and image.torch and not image.cuda:
        yield Finding("torch-without-cuda", f"torch {image.torch} of the image is built without CUDA")
    for gpu in gpus if image.architectures else ():
        if not runs_on(image.architectures, gpu):
            has = " ".join(image.architectures)
            yield Finding("gpu-architecture", f"torch {image.torch} of the image has no kernels for {gpu}, only {has}")


def _mpi(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    """Whether the image's MPI fits what starts it: an error only for programs that call MPI."""
    severity: Severity = "error" if wanted.mpi else "warning"
    if wanted.host_mpi:
        return
    if not image.mpi:
        if wanted.mpi:
            yield Finding("mpi-missing", "the image has no MPI")
        return
    if host.mpi and host.mpi.family != image.mpi.family:
        yield Finding("mpi-family", f"the host's MPI is {host.mpi.family}, the image's {image.mpi.family}", severity)
    elif host.mpi and version(host.mpi.version)[:1] != version(image.mpi.version)[:1]:
        both = f"the host has {host.mpi.family} {host.mpi.version}, the image {image.mpi.version}"
        yield Finding("mpi-major", both, severity)
    client = image.mpi.pmix
    if client and host.pmix_served and not host.pmix_served & PMIX_MEETS.get(client, frozenset({client})):
        served = " or ".join(map(str, sorted(host.pmix_served)))
        yield Finding("pmix", f"the image speaks PMIx {client}, and ranks are started with PMIx {served}", severity)


def _software(wanted: Wanted, host: HostFacts, image: ImageFacts) -> Iterator[Finding]:
    if wanted.host_mpi and host.glibc and image.glibc and version(image.glibc) < version(host.glibc):
        yield Finding("glibc-old", f"glibc {image.glibc} of the image is older than the host's {host.glibc}")
    if wanted.training and image.torch_error:
        yield Finding("torch-broken", f"torch does not import in the image: {image.torch_error}")
    if wanted.training and image.training is False:
        yield Finding("training-missing", "the package 'training' is not found in the image")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
