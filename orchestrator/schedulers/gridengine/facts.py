"""The cluster as Grid Engine reports it: cluster queues, parallel environments, hosts, projects, and racks.

A rack is a host group, as `qconf -shgrp @rack1` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Tree
from torusrun.orchestrator.schedulers.cluster_facts import (
    Ask,
    ClusterFacts,
    NodeKind,
    Queue,
    counted,
    duration_s,
    optional,
    size_bytes,
)
from torusrun.orchestrator.schedulers.gridengine.states import xml
from torusrun.orchestrator.schedulers.interface import SwitchSource
from torusrun.training.counted import first_of

VERSION = ("qstat", "-help")
QUEUES = ("qconf", "-sq", "*")
INSTANCES = ("qselect",)
ENVIRONMENTS = ("qconf", "-spl")
ENVIRONMENT = ("qconf", "-sp")
HOSTS = ("qhost", "-xml")
GPUS = ("qhost", "-F", "gpu")
GPU = re.compile(r"(?:^|\s)([a-z]{2}):gpu=(\d+(?:\.0*)?)(?=\s|,|$)")  # hc:gpu=2.000000
RESOURCES = ("qconf", "-sc")
PROJECTS = ("qconf", "-sprjl")
CONFIGURATION = ("qconf", "-sconf")
GROUPS = ("qconf", "-shgrpl")
RACK = "@rack"  # how the names of racks' host groups begin, unless topology.attribute says otherwise


def describe(ask: Ask) -> ClusterFacts:
    """Query Grid Engine. Raises SiteError if it does not list its queues or hosts."""
    queue_records, hosts, listed = records(ask(QUEUES)), nodes(ask(HOSTS)), optional(ask, GPUS)
    of_host = gpus(listed)
    hosts = {name: replace(kind, gpus=of_host.get(name, ("", 0))[1]) for name, kind in hosts.items()}
    environments = {name: slots(optional(ask, [*ENVIRONMENT, name])) for name in optional(ask, ENVIRONMENTS).split()}
    configuration = records(optional(ask, CONFIGURATION))
    resources = (line.split() for line in optional(ask, RESOURCES).splitlines() if not line.startswith("#"))
    has_racks = any(word.startswith(RACK) for word in optional(ask, GROUPS).split())
    return ClusterFacts(
        _version(optional(ask, VERSION)),
        queues(queue_records, hosts),
        environments={name: count for name, count in environments.items() if count},
        resources=frozenset(words[0] for words in resources if words),
        topology={"source": "gridengine"} if has_racks else None,
        accounts=tuple(optional(ask, PROJECTS).split()),
        needs_account=any(record.get("enforce_project") == "true" for record in configuration),
        commands={
            "scheduler": " ".join(VERSION),
            "queues": "qconf -sq",
            "nodes": " ".join(HOSTS[:1]),
            "topology": " ".join(GROUPS),
            "accounts": " ".join(PROJECTS),
            "environments": " ".join(ENVIRONMENT),
        },
        remarks=(*_in_use(of_host), *_not_understood(listed)),
    )


def _version(text: str) -> str:
    """The line of the product in `qstat -help`, which is the last before its usage."""
    lines = [line.strip() for line in text.partition("usage:")[0].splitlines() if line.strip()]
    return lines[-1] if lines else ""


def records(text: str) -> list[dict[str, str]]:
    """The records in qconf's output: lines of a name and a value, continued after a backslash; blank lines between."""
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    parts = re.split(r"\n\s*\n|\n(?=qname\s)", joined)
    parsed = [
        dict(line.split(None, 1) for line in part.splitlines() if len(line.split(None, 1)) == 2) for part in parts
    ]
    return [{key: value.strip() for key, value in record.items()} for record in parsed if record]


def queues(records: Sequence[Mapping[str, str]], hosts: Mapping[str, NodeKind]) -> tuple[Queue, ...]:
    """The queues, from the records of `qconf -sq` and the hosts. A queue of host groups counts as having all hosts."""
    read = tuple(_queue(record, hosts) for record in records if "qname" in record)
    if not read:
        raise SiteError(f"`{' '.join(QUEUES)}` shows no queue")
    return read


def nodes(text: str) -> dict[str, NodeKind]:
    """Every execution host in the output of `qhost -xml`, with its cores if they are listed, else its processors."""
    kinds = {}
    for host in xml(text, f"`{' '.join(HOSTS)}`").iter("host"):
        attributes = {value.get("name"): value.text or "" for value in host.iter("hostvalue")}
        counts = (attributes.get(name, "-") for name in ("m_core", "num_proc"))
        if host.get("name") != "global":
            cpus = next((int(count) for count in counts if count.isdecimal()), None)
            kinds[host.get("name", "")] = NodeKind(1, cpus, size_bytes(attributes.get("mem_total", "-")))
    return kinds


def hosts_of(ask: Ask, queue: str | None) -> tuple[str, ...]:
    """The hosts with an instance of the queue, or of any queue for None. Raises SiteError."""
    words = ask([*INSTANCES, *(["-q", queue] if queue else [])]).split()  # as in all.q@node1
    return tuple(dict.fromkeys(word.rpartition("@")[2] for word in words))


def slots(text: str) -> int:
    """The slots per host of a parallel environment in `qconf -sp NAME`; 0 unless its rule is a number."""
    (record, *_) = [*records(text), {}]
    rule = record.get("allocation_rule", "")
    return int(rule) if rule.isdecimal() else 0


def gpus(text: str) -> dict[str, tuple[str, int]]:
    """The resource gpu of every host in `qhost -F gpu`: its letters (hc: what it has left, qhost(1)) and number.

    A consumable of the whole cluster (gc) says nothing of a host.
    """
    of_host, host = {}, ""
    for line in text.splitlines():
        if match := GPU.search(line):
            if not match[1].startswith("g"):
                of_host[host] = (match[1], int(float(match[2])))
        elif re.match(r"[A-Za-z0-9]", line):
            host = line.split()[0]
    return of_host


def _in_use(listed: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """That jobs may use some of the GPUs of hosts whose number is what they have left."""
    if consumed := [host for host, (letters, _) in listed.items() if letters.endswith("c")]:
        yield f"`{' '.join(GPUS)}` tells only how many GPUs of {first_of(consumed)} are free now: check node.gpus"


def _not_understood(listed: str) -> Iterator[str]:
    """The lines of `qhost -F gpu` about a resource gpu that were not read."""
    for line in dict.fromkeys(listed.splitlines()):
        if re.search(r"\bgpu=", line) and not GPU.search(line):
            yield f"`{' '.join(GPUS)}` lists GPUs that were not understood: {line.strip()[:200]!r}"


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


def show(group: str) -> tuple[str, ...]:
    """The command that prints one group with all its hosts, including those of groups in it."""
    return ("qconf", "-shgrp_resolved", group)


def group_names(text: str, prefix: str) -> list[str]:
    """The groups in the output of `qconf -shgrpl` with names that begin with `prefix`. Raises SiteError if none."""
    named = [word for word in text.split() if word.startswith("@")]
    chosen = [word for word in named if word.startswith(prefix)]
    if not chosen:
        raise SiteError(f"Grid Engine has no host group whose name begins with {prefix!r} (it has {', '.join(named)})")
    return chosen


def printed(ask: Ask, prefix: str) -> str:
    """All host groups whose names begin with `prefix`, as Grid Engine prints them."""
    answers = {group: ask(show(group)) for group in group_names(ask(GROUPS), prefix)}
    return "\n".join(
        answer if answer.startswith("group_name") else f"group_name {group}\nhostlist {answer}"
        for group, answer in answers.items()
    )


def tree(text: str) -> Tree:
    """The racks in a text of any number of printed groups. Raises SiteError if `text` has none.

    A group that names other groups is ignored: only groups of hosts are leaves.
    """
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    groups = re.findall(r"^group_name\s+(@\S+)\s*\nhostlist\s+(.*)$", joined, re.MULTILINE)
    leaves = {}
    for group, words in groups:
        hosts = [word for word in words.split() if word != "NONE"]
        if hosts and not any(word.startswith("@") for word in hosts):
            leaves[group] = hosts
    if not leaves:
        raise SiteError(f"this is not the output of qconf -shgrp for a group with hosts: {text.strip()[:80]!r}")
    return Tree(leaves)


SWITCHES = SwitchSource(lambda text, _: tree(text), printed, RACK)
