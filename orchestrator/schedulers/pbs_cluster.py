"""What PBS tells of its cluster: queues with their limits, and vnodes with their resources."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.cluster import pbs as topology
from orchestrator.errors import SiteError
from orchestrator.schedulers.cluster_facts import Ask, ClusterFacts, NodeKind, Queue, counted, duration_s, optional

QUEUES = ("qstat", "-Q", "-f", "-F", "json")
SERVER = ("qstat", "-B", "-f", "-F", "json")
NODES = topology.COMMAND
SWITCH = "switch"  # the resource that names a node's switch, unless topology.attribute says otherwise
UNITS = {"b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40, "": 1}
CLOSED = {"enabled": "it is disabled", "started": "it is stopped"}
Record = Mapping[str, Any]


def describe(ask: Ask) -> ClusterFacts:
    """Ask PBS. Raises SiteError where its queues cannot be had."""
    listed = _read(ask(QUEUES), "Queue", " ".join(QUEUES))
    nodes = optional(ask, NODES)
    vnodes = _read(nodes, "nodes", " ".join(NODES)) if nodes else {}
    (server, *_) = [*_records(optional(ask, SERVER), "Server").values(), {}]
    resources = frozenset(name for vnode in vnodes.values() for name in _part(vnode, "resources_available"))
    return ClusterFacts(
        f"pbs_version {server['pbs_version']}" if "pbs_version" in server else "",
        queues(listed, vnodes, str(server.get("default_queue", ""))),
        str(server["server_host"]) if "server_host" in server else None,
        resources=resources,
        topology={"source": "pbs"} if SWITCH in resources else None,
        commands={
            "scheduler": "qstat -B -f",
            "queues": "qstat -Q -f",
            "nodes": "pbsnodes -a",
            "topology": "pbsnodes -a",
            "accounts": "",
        },
    )


def queues(listed: Mapping[str, Record], vnodes: Mapping[str, Record], default: str) -> tuple[Queue, ...]:
    """The execution queues; the nodes of one are those that are bound to it, or all that are bound to none."""
    execution = {name: record for name, record in listed.items() if record.get("queue_type") == "Execution"}
    if not execution:
        raise SiteError(f"`{' '.join(QUEUES)}` shows no execution queue")
    return tuple(_queue(name, record, vnodes, default) for name, record in execution.items())


def size_bytes(text: str) -> int | None:
    """64gb or 7532kb as bytes; None for something else."""
    match = re.fullmatch(r"(\d+)([kmgt]?b|)", text.strip().lower())
    return int(match[1]) * UNITS[match[2]] if match else None


def _queue(name: str, record: Record, vnodes: Mapping[str, Record], default: str) -> Queue:
    most = _part(record, "resources_max")
    bound = [vnode for vnode in vnodes.values() if name in _bound(vnode)]
    mine = bound or [vnode for vnode in vnodes.values() if not _bound(vnode)]
    closed = [why for key, why in CLOSED.items() if record.get(key) == "False"]
    limit = str(most.get("nodect", ""))
    return Queue(
        name,
        counted(_kind(_part(vnode, "resources_available")) for vnode in mine),
        duration_s(str(most.get("walltime", ""))),
        int(limit) if limit.isdecimal() else None,
        name == default,
        " and ".join(closed),
    )


def _bound(vnode: Record) -> list[str]:
    """The queues that a vnode serves alone, by its attribute or by the usual resource; none for one that serves all."""
    named = vnode.get("queue") or _part(vnode, "resources_available").get("Qlist", "")
    return [name.strip() for name in str(named).split(",") if name.strip()]


def _kind(resources: Record) -> NodeKind:
    cpus, count = str(resources.get("ncpus", "")), str(resources.get("ngpus", "0"))
    named = resources.get("gpu_type")
    return NodeKind(
        1,
        int(cpus) if cpus.isdecimal() else None,
        size_bytes(str(resources.get("mem", ""))),
        int(count) if count.isdecimal() else 0,
        str(named) if named else None,
    )


def _part(record: Record, key: str) -> Record:
    part = record.get(key, {})
    return part if isinstance(part, dict) else {}


def _read(text: str, key: str, command: str) -> Mapping[str, Record]:
    if found := _records(text, key):
        return found
    raise SiteError(f"`{command}` did not print JSON with {key!r}: {text.strip()[:80]!r}")


def _records(text: str, key: str) -> Mapping[str, Record]:
    """The objects below `key`; none where the text is not JSON, as a release prints it for some values."""
    try:
        found = json.loads(text)[key].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: record for name, record in found if isinstance(record, dict)}
