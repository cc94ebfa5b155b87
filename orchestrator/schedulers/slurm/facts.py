"""The cluster as Slurm reports it: partitions, nodes, generic resources, accounts, and the tree of switches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torusrun.orchestrator.base.environment import user_name
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts, NodeKind, Queue, duration_s, optional
from torusrun.orchestrator.schedulers.slurm import topology

VERSION = ("sinfo", "--version")
PARTITIONS = ("scontrol", "show", "partition", "--oneliner")
NODES = ("sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%m|%G")
NODE_NAMES = ("sinfo", "--noheader", "--Node", "--format=%P|%N")
CONFIGURATION = ("scontrol", "show", "config")
ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=Account")
GRES = re.compile(r",(?![^(]*\))")  # between the resources of a node: not within (S:0,2)
# As in gpu:4, gpu:2080Ti:4(S:0-1), gpu:a100_3g.20gb:2, gpu:(null):4(IDX:0-3), gres/gpu:tesla=4.
TYPE = r"(?!\d+(?:\(|$)|no_consume:)([^:=,()\s]+|\(null\))"  # in gpu:4 the number follows at once
GPUS = re.compile(rf"(?:gres/)?gpu(?::{TYPE})?(?::no_consume)?[:=](\d+)(?:\([^()]*\))?")
DEFAULT_ACCOUNT = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "format=DefaultAccount")


def describe(ask: Ask, user: str | None = None) -> ClusterFacts:
    """Query Slurm. Raises SiteError if it does not list its partitions or nodes."""
    version, partitions, nodes = ask(VERSION), ask(PARTITIONS), ask(NODES)
    configuration = settings(optional(ask, CONFIGURATION))
    user = user or user_name()
    default = optional(ask, [*DEFAULT_ACCOUNT, user]).split()
    accounts = tuple(dict.fromkeys([*default, *optional(ask, [*ACCOUNTS, f"user={user}"]).split()]))
    enforced = "associations" in configuration.get("AccountingStorageEnforce", "")
    return ClusterFacts(
        next((line for line in version.splitlines() if re.search(r"slurm.* \d", line, re.I)), version).strip(),
        queues(partitions, nodes, accounts),
        configuration.get("ClusterName"),
        topology=_topology(ask, configuration),
        accounts=accounts,
        needs_account=enforced and not default,
        launcher="srun",
        asks_memory=True,  # a default of 200 MB for each CPU is less than PyTorch takes
        commands={
            "scheduler": " ".join(VERSION),
            "queues": " ".join(PARTITIONS[:3]),
            "nodes": "sinfo --exact",
            "topology": " ".join(topology.COMMAND),
            "accounts": "sacctmgr show associations",
        },
        remarks=tuple(_not_understood(nodes)),
    )


def _topology(ask: Ask, configuration: Mapping[str, str]) -> dict[str, Any] | None:
    """The keys of a site's topology. With a topology.yaml Slurm still reports TopologyPlugin=topology/flat."""
    if "none" in configuration.get("TopologyPlugin", ""):
        return None
    try:
        block_nodes = topology.blocks(ask)
    except SiteError:
        return None
    return {"source": "slurm"} | ({"block_nodes": block_nodes} if block_nodes else {})


def queues(partitions: str, nodes: str, accounts: Sequence[str] = ()) -> tuple[Queue, ...]:
    """The queues in `scontrol show partition --oneliner` and sinfo's rows; `accounts` are the user's, if known."""
    kinds: dict[str, list[NodeKind]] = {}
    for line in nodes.splitlines():
        words = line.split("|")
        if len(words) == 5:
            kinds.setdefault(words[0].rstrip("*"), []).append(_kind(words[1:]))
    found = [topology.named(line) for line in partitions.splitlines()]
    named = {words["PartitionName"]: words for words in found if "PartitionName" in words}
    read = tuple(_queue(words, tuple(kinds.get(name, ())), accounts) for name, words in named.items())
    if not read:
        raise SiteError(f"`{' '.join(PARTITIONS)}` shows no partition: {partitions.strip()[:80]!r}")
    return read


def hosts(ask: Ask, queue: str | None) -> tuple[str, ...]:
    """The nodes of partitions, named as in 'a,b', or of the default one for None. Raises SiteError."""
    rows = [line.split("|") for line in ask(NODE_NAMES).splitlines()]
    named = [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2]
    wanted = queue.split(",") if queue else [name.rstrip("*") for name, _ in named if name.endswith("*")]
    return tuple(dict.fromkeys(node for name, node in named if name.rstrip("*") in wanted))


def settings(text: str) -> dict[str, str]:
    """The settings in the output of `scontrol show config`, by name."""
    return {key: value.strip() for key, value in re.findall(r"^(\w+)\s+= (.*)$", text, re.MULTILINE)}


def _queue(words: dict[str, str], kinds: tuple[NodeKind, ...], accounts: Sequence[str]) -> Queue:
    most = words.get("MaxNodes", "")
    return Queue(
        words["PartitionName"],
        kinds,
        duration_s(words.get("MaxTime", "")),
        int(most) if most.isdecimal() else None,
        words.get("Default") == "YES",
        _closed(words, accounts),
    )


def _closed(words: dict[str, str], accounts: Sequence[str]) -> str:
    """Why the partition takes none of the user's jobs; '' if it does."""
    state, allowed = words.get("State", "UP"), words.get("AllowAccounts", "ALL")
    if state != "UP":
        return f"its state is {state}"
    if words.get("RootOnly") == "YES":
        return "only root may use it"
    is_mine = allowed == "ALL" or not accounts or set(accounts) & set(allowed.split(","))
    return "" if is_mine else f"it is for the accounts {allowed}"


def _kind(words: Sequence[str]) -> NodeKind:
    """The nodes of a row of sinfo: nodes, CPUs, megabytes, generic resources as in gpu:v100:4(S:0-1),gpu:1."""
    nodes, cpus, megabytes, resources = words
    gpus, kind = _gpus(resources)
    return NodeKind(_number(nodes) or 0, _number(cpus), (_number(megabytes) or 0) * 2**20 or None, gpus, kind)


def _gpus(resources: str) -> tuple[int, str | None]:
    """(number, type) of the GPUs among a node's generic resources; None for several types."""
    read = [match for word in GRES.split(resources) if (match := GPUS.fullmatch(word.strip()))]
    counts = [(None if match[1] == "(null)" else match[1], int(match[2]), "=" in match[0]) for match in read]
    types = {kind for kind, _, _ in counts if kind}
    totals = [number for kind, number, is_sum in counts if is_sum and not kind]  # gres/gpu=4 counts those of all types
    number = sum(totals) or sum(number for _, number, _ in counts)
    return number, types.pop() if len(types) == 1 else None


def _not_understood(nodes: str) -> Iterator[str]:
    """The generic resources in sinfo's rows that are GPUs and were not read."""
    rows = [line.split("|") for line in nodes.splitlines()]
    for resources in dict.fromkeys(row[4] for row in rows if len(row) == 5):
        for word in map(str.strip, GRES.split(resources)):
            if re.match(r"(gres/)?gpu\b", word) and not GPUS.fullmatch(word):
                yield f"`{' '.join(NODES[:1])}` lists GPUs that were not understood: {word[:200]!r}"


def _number(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None
