"""The image copied once to every node's own disk before its ranks start, so that a shared file system is read once."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from orchestrator import process
from orchestrator.errors import SiteError
from orchestrator.images import Image

BROADCAST_S = 1800.0


def broadcast(image: Image, folder: str) -> None:
    """Copy the image to all nodes of a Slurm job, in a tree. Raises SiteError when that fails."""
    copy = place(folder, image.sha256)
    words = ["srun", "--ntasks-per-node=1", "--mpi=none", "mkdir", "-p", "--", str(copy.parent)]
    nodes = f"--ntasks={os.environ.get('SLURM_JOB_NUM_NODES', '1')}"
    process.run([words[0], nodes, *words[1:]], timeout_s=BROADCAST_S, environment=os.environ).check("staging the image")
    sbcast = ["sbcast", "--force", image.path, str(copy)]
    process.run(sbcast, timeout_s=BROADCAST_S, environment=os.environ).check("staging the image")


def copied(image: Path, folder: str, sha256: str) -> Path:
    """The image's copy below this node's `folder`, made by whichever rank of the node comes first."""
    copy = place(folder, sha256)
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with open(copy.with_suffix(".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not copy.exists():
                partial = copy.with_suffix(".partial")
                shutil.copyfile(image, partial)
                partial.replace(copy)
    except OSError as error:
        raise SiteError(f"{copy}: the image cannot be staged here: {error.strerror}") from None
    return copy


def place(folder: str, sha256: str) -> Path:
    """Where the copy of an image lies on a node. Raises SiteError where the folder's variables are not set."""
    expanded = os.path.expandvars(folder)
    if "$" in expanded:
        raise SiteError(f"'container.stage' {folder!r} names a variable that is not set on this node")
    return Path(expanded) / f"torusrun-{os.getuid()}" / f"{sha256[:16]}.sif"
