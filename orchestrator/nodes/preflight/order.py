"""What the process on each node must know: whom to report to, and what its node should have."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.folder.run_folder import Attempt

FREE_DISK_BYTES = 256 * 1024**2  # of a node's folder for temporary files


@dataclass(frozen=True)
class WantedNode:
    """What a node should have. None and '' for what is not checked against a limit.

    `scratch` is the node's folder for temporary files, with its variables. `runtime` and `image` are paths.
    """

    gpus: int = 0
    interface: str | None = None
    hcas: tuple[str, ...] = ()
    port_bytes_per_s: float | None = None
    free_memory_bytes: float | None = None
    free_disk_bytes: float = 0.0
    scratch: str = ""
    runtime: str = ""
    image: str = ""


def wanted(site: Site, runtime: str = "", image: str = "") -> WantedNode:
    """What the nodes of a site should have. Half of the memory that a job asks for must be free."""
    node = site.node
    return WantedNode(
        gpus=node.gpus,
        interface=node.interface,
        hcas=node.hcas,
        port_bytes_per_s=site.preflight.port_bytes_per_s,
        free_memory_bytes=node.memory_bytes / 2 if node.memory_bytes else None,
        free_disk_bytes=FREE_DISK_BYTES,
        scratch=site.container.stage or "$TORUSRUN_SCRATCH",
        runtime=runtime,
        image=image,
    )


@dataclass(frozen=True)
class NodeOrder:
    """The supervisor's addresses, the port of each, a secret (hex) that both sides prove, and what is wanted.

    `hosts` are all of the job, and `host_variable` has the scheduler's name of a process's own.
    """

    addresses: tuple[str, ...]
    ports: tuple[int, ...]
    secret: str
    node: WantedNode
    hosts: tuple[str, ...] = ()
    host_variable: str = ""

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)

    def write(self, attempt: Attempt) -> None:
        write_json(attempt.preflight_order, asdict(self), secret=True)


def read(attempt: Attempt) -> NodeOrder:
    """The order of an attempt's preflight. Raises SiteError if it is gone, damaged, or not this user's."""
    path = attempt.preflight_order
    if not private.is_mine(path) or not (order := read_record(path, NodeOrder)):
        raise SiteError(f"{path}: user {os.geteuid()} has no such file")
    return order
