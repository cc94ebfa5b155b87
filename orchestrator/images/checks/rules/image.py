"""Whether the nodes can read the image's file and start programs in it."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.images.checks.findings import Finding, fits, unknown
from torusrun.orchestrator.images.checks.needs import Wanted
from torusrun.orchestrator.images.checks.sourced_facts import HostFacts, ImageFacts

RUNS_TOO = {("i686", "x86_64"), ("armv7l", "aarch64")}


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
