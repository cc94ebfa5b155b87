"""What the supervisor and the process on a node tell each other: a file before the start, then JSON on a connection."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import parsed, write_json
from torusrun.orchestrator.base.typed import read_record, record_of
from torusrun.orchestrator.job.connection import Broken, Connection, Frame
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.nodes.findings import NodeFindings
from torusrun.orchestrator.run.folder.run_folder import Attempt

FREE_DISK_BYTES = 256 * 1024**2  # of a node's folder for temporary files

Message = TypeVar("Message")


@dataclass(frozen=True)
class WantedNode:
    """What a node should have. None and '' for what is not checked against a limit.

    `scratch` is the node's folder for temporary files, with its variables. `runtime` and `images` are paths.
    """

    gpus: int = 0
    interface: str | None = None
    hcas: tuple[str, ...] = ()
    free_memory_bytes: float | None = None
    free_disk_bytes: float = 0.0
    scratch: str = ""
    runtime: str = ""
    images: tuple[str, ...] = ()


def wanted(site: Site, runtime: str = "", images: Sequence[str] = ()) -> WantedNode:
    """What the nodes of a site should have. Half of the memory that a job asks for must be free."""
    node, memory = site.node, site.request.memory_of(site.node.ranks)
    return WantedNode(
        gpus=site.gpus,
        interface=node.interface,
        hcas=node.hcas,
        free_memory_bytes=memory / 2 if memory else None,
        free_disk_bytes=FREE_DISK_BYTES,
        scratch=site.stage or "$TORUSRUN_SCRATCH",
        runtime=runtime,
        images=tuple(images),
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


def read_order(attempt: Attempt) -> NodeOrder:
    """The order of an attempt's preflight. Raises SiteError if it is gone, damaged, or not this user's."""
    path = attempt.preflight_order
    if not private.is_mine(path) or not (order := read_record(path, NodeOrder)):
        raise SiteError(f"{path}: user {os.geteuid()} has no such file")
    return order


@dataclass(frozen=True)
class Hello:
    """A node's name, by which it begins."""

    host: str


@dataclass(frozen=True)
class NodeReport:
    """The findings of a node, and where it can be measured; '' for the address if nowhere."""

    findings: NodeFindings
    address: str = ""
    port: int = 0


@dataclass(frozen=True)
class Errand:
    """What a node shall do next.

    With a `token` it measures with the partner that knows the token, too: it calls `address`, or without an address
    waits for the call. Otherwise it ends.
    """

    token: str = ""
    address: str = ""
    port: int = 0
    measure_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """The rate at which a node received, or why it could not be measured."""

    bytes_per_s: float = 0.0
    failed: str = ""


def say(connection: Connection, message: Any) -> None:
    """Send a record. Raises OSError if the other side is gone."""
    connection.send(Frame.INPUT, json.dumps(asdict(message)).encode())


def hear(connection: Connection, kind: type[Message]) -> Message:
    """The next record, of this kind. Raises OSError if the other side is gone or says something else."""
    _, content = connection.receive()
    try:
        message: Message = record_of(kind, parsed(content))
    except ValueError as error:
        raise Broken(f"the other side sent something else: {error}") from None
    return message
