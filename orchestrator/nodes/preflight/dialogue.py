"""What the supervisor and the process on a node say to each other: JSON in the frames of a proved connection."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.job.connection import Broken, Connection, Frame
from torusrun.orchestrator.run.folder.node_findings import NodeFindings

Said = TypeVar("Said")


@dataclass(frozen=True)
class Hello:
    """A node's name, and the time of its clock when the supervisor asked."""

    host: str
    time_s: float


@dataclass(frozen=True)
class NodeReport:
    """What a node found, and where it can be measured; '' for the address if nowhere."""

    found: NodeFindings
    address: str = ""
    port: int = 0


@dataclass(frozen=True)
class Errand:
    """What a node shall do next.

    With a `token` it measures with the partner that knows the same one: it calls `address`, or without an address waits
    for the call. With `asks` it says hello. Otherwise it ends.
    """

    asks: bool = False

    token: str = ""
    address: str = ""
    port: int = 0
    measure_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """The rate at which a node received, or why it could not be measured."""

    bytes_per_s: float = 0.0
    failed: str = ""


def say(connection: Connection, said: Any) -> None:
    """Send a record. Raises OSError if the other side is gone."""
    connection.send(Frame.INPUT, json.dumps(asdict(said)).encode())


def hear(connection: Connection, kind: type[Said]) -> Said:
    """The next record, of this kind. Raises OSError if the other side is gone or says something else."""
    _, content = connection.receive()
    try:
        said: Said = record_of(kind, parsed(content))
    except ValueError as error:
        raise Broken(f"the other side sent something else: {error}") from None
    return said
