"""The cluster as Grid Engine reports it: cluster queues, parallel environments, hosts, projects, groups of hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.schedulers.cluster_facts import (
    Ask,
    ClusterFacts,
    NodeKind,
    Queue,
    counted,
    duration_s,
    is_answered,
    optional,
    size_bytes,
)
from torusrun.orchestrator.schedulers.gridengine import topology
from torusrun.orchestrator.schedulers.gridengine.states import xml

VERSION = ("qstat", "-help")
QUEUES = ("qconf", "-sq", "*")
INSTANCES = ("qselect",)
ENVIRONMENTS = ("qconf", "-spl")
ENVIRONMENT = ("qconf", "-sp")
HOSTS = ("qhost", "-xml")
GPUS = ("qhost", "-F", "gpu")
RESOURCES = ("qconf", "-sc")
PROJECTS = ("qconf", "-sprjl")
CONFIGURATION = ("qconf", "-sconf")


def describe(ask: Ask) -> ClusterFacts:
    """Query Grid Engine. Raises SiteError if it does not list its queues or hosts."""
    found, hosts, of_host = records(ask(QUEUES)), nodes(ask(HOSTS)), gpus(optional(ask, GPUS))
    hosts = {name: replace(kind, gpus=of_host.get(name, 0)) for name, kind in hosts.items()}
    names = optional(ask, ENVIRONMENTS).split()
    environments = {name: slots(optional(ask, [*ENVIRONMENT, name])) for name in names}
    configuration = records(optional(ask, CONFIGURATION))
    resources = (line.split() for line in optional(ask, RESOURCES).splitlines() if not line.startswith("#"))
    has_racks = is_answered(lambda: topology.group_names(ask(topology.GROUPS), topology.RACK))
    return ClusterFacts(
        (optional(ask, VERSION).splitlines() or [""])[0].strip(),
        queues(found, hosts),
        environments={name: count for name, count in environments.items() if count},
        resources=frozenset(words[0] for words in resources if words),
        topology={"source": "gridengine"} if has_racks else None,
        accounts=tuple(optional(ask, PROJECTS).split()),
        needs_account=any(record.get("enforce_project") == "true" for record in configuration),
        commands={
            "scheduler": " ".join(VERSION),
            "queues": "qconf -sq",
            "nodes": " ".join(HOSTS[:1]),
            "topology": " ".join(topology.GROUPS),
            "accounts": " ".join(PROJECTS),
            "environments": " ".join(ENVIRONMENT),
        },
    )


def records(text: str) -> list[dict[str, str]]:
    """The records in qconf's output: lines of a name and a value, continued by a backslash; an empty line ends one."""
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    parts = re.split(r"\n\s*\n|\n(?=qname\s)", joined)
    found = [dict(line.split(None, 1) for line in part.splitlines() if len(line.split(None, 1)) == 2) for part in parts]
    return [{key: value.strip() for key, value in record.items()} for record in found if record]


def queues(found: Sequence[Mapping[str, str]], hosts: Mapping[str, NodeKind]) -> tuple[Queue, ...]:
    """The queues, from the records of `qconf -sq` and the hosts. A queue of host groups counts as having all hosts."""
    read = tuple(_queue(record, hosts) for record in found if "qname" in record)
    if not read:
        raise SiteError(f"`{' '.join(QUEUES)}` shows no queue")
    return read


def nodes(text: str) -> dict[str, NodeKind]:
    """Every execution host in the output of `qhost -xml`, with its cores if they are listed, else its processors."""
    found = {}
    for host in xml(text, f"`{' '.join(HOSTS)}`").iter("host"):
        attributes = {value.get("name"): value.text or "" for value in host.iter("hostvalue")}
        count = (
            attributes.get("m_core") if attributes.get("m_core", "-").isdecimal() else attributes.get("num_proc", "-")
        )
        if host.get("name") != "global":
            cpus = int(count) if count and count.isdecimal() else None
            found[host.get("name", "")] = NodeKind(1, cpus, size_bytes(attributes.get("mem_total", "-")))
    return found


def hosts_of(ask: Ask, queue: str | None) -> tuple[str, ...]:
    """The hosts with an instance of the queue, or of any queue for None. Raises SiteError."""
    words = ask([*INSTANCES, *(["-q", queue] if queue else [])]).split()  # as in all.q@node1
    return tuple(dict.fromkeys(word.rpartition("@")[2] for word in words))


def slots(text: str) -> int:
    """The slots per host of a parallel environment in `qconf -sp NAME`; 0 unless its rule is a number."""
    (record, *_) = [*records(text), {}]
    rule = record.get("allocation_rule", "")
    return int(rule) if rule.isdecimal() else 0


def gpus(text: str) -> dict[str, int]:
    """The resource gpu of every host, from the output of `qhost -F gpu`."""
    found, host = {}, ""
    for line in text.splitlines():
        if match := re.match(r"\s+\w+:gpu=(\d+)", line):
            found[host] = int(match[1])
        elif re.match(r"[A-Za-z0-9]", line):
            host = line.split()[0]
    return found


def _queue(record: Mapping[str, str], hosts: Mapping[str, NodeKind]) -> Queue:
    listed = record.get("hostlist", "").split()
    named = [hosts[host] for host in listed if host in hosts]
    kinds = named if len(named) == len(listed) else list(hosts.values())
    listed_environments = record.get("pe_list", "NONE").replace(",", " ").split()
    return Queue(
        record["qname"],
        counted(kinds),
        _limit_s(record.get("h_rt", "").split(",")[0]),
        closed="" if "BATCH" in record.get("qtype", "BATCH") else f"its type is {record['qtype']}",
        environments=tuple(name for name in listed_environments if name != "NONE"),
    )


def _limit_s(text: str) -> float | None:
    """The seconds of a queue's h_rt: plain digits are seconds (sge_types(1), time_specifier); None for no limit."""
    return float(text) if text.strip().isdecimal() else duration_s(text)
