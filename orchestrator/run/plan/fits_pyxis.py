"""Checks of a site that starts its ranks by Pyxis: sites without Pyxis, and keys that have no effect with it."""

from __future__ import annotations

from collections.abc import Iterator

from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.images.command import TMPFS
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.launchers import family


def misfits(site: Site) -> Iterator[tuple[str, str]]:
    """(the key of the site, its error with advice) for every misfit."""
    container = site.container
    if not pyxis.used(container.runtime):
        return
    if not family(site.launcher).pyxis:
        yield (
            "container.runtime",
            f"'container.runtime': Pyxis is a plug-in of Slurm's srun, and this site starts its ranks by "
            f"{site.launcher} ({site.scheduler}); name apptainer or singularity, or leave it out",
        )
    unpacked = "enroot unpacks the image to each node's own disk, once for all its ranks"
    if container.stage:
        yield "container.stage", f"'container.stage' has no use with Pyxis: {unpacked}; leave it out"
    if container.mount == "node":
        yield "container.mount", f"'container.mount: node' has no use with Pyxis: {unpacked}; leave it out"
    if container.verify == "signature":
        what = "'container.verify: signature' does not work with Pyxis: a squashfs has no signature"
        yield "container.verify", f"{what}; write checksum, or leave it out"
    if container.gpu in ("nvccli", "rocm"):
        what = f"'container.gpu: {container.gpu}' does not work with Pyxis: enroot's own hook brings NVIDIA's GPUs in"
        yield "container.gpu", f"{what}; write nv or none, or leave it out"
    if container.writable not in (None, TMPFS):
        what = f"'container.writable: {container.writable}' does not work with Pyxis, which keeps no changes"
        yield "container.writable", f"{what}; write tmpfs: the changes last until the ranks end"
