"""Whether the image's torch runs on the nodes' GPUs.

A mismatch is an error for a training, which uses this torch. A command may use another or none: it gets a warning.
"""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.images.checks.compat import oldest_driver, runs_on, version
from torusrun.orchestrator.images.checks.findings import Finding, Severity, fits, unknown
from torusrun.orchestrator.images.checks.needs import Wanted
from torusrun.orchestrator.images.checks.sourced_facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.runtime import dotted


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
    of_nodes = None if wanted.cluster else host.driver  # a login node may have another one
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
    of_nodes = () if wanted.cluster else host.gpus  # a login node may have others
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
