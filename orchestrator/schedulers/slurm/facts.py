"""The cluster as Slurm reports it: partitions, nodes, generic resources, accounts, and the tree of switches.

A line of topology.conf is `SwitchName=s0 Nodes=n[0-3]` or `SwitchName=s9 Switches=s[0-1]`, or names a block, a ring or
a torus in place of a switch. These become leaf switches: the model has no links between single nodes. scontrol adds
Level, LinkSpeed, BlockIndex and others; it prints these lines also if the site has a topology.yaml. A file may have
comments, and lines that continue after a backslash (topology.conf(5), Slurm 22.05 and 26.05).
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.place.hosts.model import Tree
from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts, NodeKind, Queue, duration_s, optional
from torusrun.orchestrator.schedulers.interface import SwitchSource
from torusrun.orchestrator.schedulers.words import user_name

VERSION = ("sinfo", "--version")
PARTITIONS = ("scontrol", "show", "partition", "--oneliner")
NODES = ("sinfo", "--noheader", "--exact", "--format=%P|%D|%c|%m|%G")
FREE = ("sinfo", "--noheader", "--states=idle", "--responding", "--format=%P|%D")
NODE_NAMES = ("sinfo", "--noheader", "--Node", "--format=%P|%N")
CONFIGURATION = ("scontrol", "show", "config")
ACCOUNTS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations", "format=Account")
GRES = re.compile(r",(?![^(]*\))")  # between the resources of a node: not within (S:0,2)
# As in gpu:4, gpu:2080Ti:4(S:0-1), gpu:a100_3g.20gb:2, gpu:(null):4(IDX:0-3), gres/gpu:tesla=4.
TYPE = r"(?!\d+(?:\(|$)|no_consume:)([^:=,()\s]+|\(null\))"  # in gpu:4 the number follows at once
GPUS = re.compile(rf"(?:gres/)?gpu(?::{TYPE})?(?::no_consume)?[:=](\d+)(?:\([^()]*\))?")
DEFAULT_ACCOUNT = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "format=DefaultAccount")
TOPOLOGY = ("scontrol", "show", "topology")
UNITS = ("blockname", "ringname", "torusname")  # each is a leaf switch to the model
IGNORED = ("aggregatedblock", "blocksizes", "placementdims")  # what lines have that name no unit of their own


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
        queues(partitions, nodes, accounts, _free(ask)),
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
            "topology": " ".join(TOPOLOGY),
            "accounts": "sacctmgr show associations",
        },
        remarks=tuple(_not_understood(nodes)),
    )


def _topology(ask: Ask, configuration: Mapping[str, str]) -> dict[str, Any] | None:
    """The keys of a site's topology. With a topology.yaml Slurm still reports TopologyPlugin=topology/flat."""
    with contextlib.suppress(SiteError):
        if "none" not in configuration.get("TopologyPlugin", "") and tree(_query(ask, "")):
            return {"source": "slurm"}
    return None


def _free(ask: Ask) -> Counter[str] | None:
    """The idle nodes by partition, None if Slurm does not answer."""
    try:
        rows = [line.split("|") for line in ask(FREE).splitlines()]
    except SiteError:
        return None
    free: Counter[str] = Counter()
    for row in rows:
        if len(row) == 2:
            free[row[0].strip().rstrip("*")] += _number(row[1]) or 0
    return free


def queues(
    partitions: str, nodes: str, accounts: Sequence[str] = (), free: Mapping[str, int] | None = None
) -> tuple[Queue, ...]:
    """The queues in `scontrol show partition --oneliner` and sinfo's rows; `accounts` are the user's, if known.

    `free` is the number of idle nodes by partition.
    """
    kinds: dict[str, list[NodeKind]] = {}
    for line in nodes.splitlines():
        words = line.split("|")
        if len(words) == 5:
            kinds.setdefault(words[0].rstrip("*"), []).append(_kind(words[1:]))
    rows = [words_of(line) for line in partitions.splitlines()]
    named = {words["PartitionName"]: words for words in rows if "PartitionName" in words}
    read = tuple(
        _queue(words, tuple(kinds.get(name, ())), accounts, None if free is None else free.get(name, 0))
        for name, words in named.items()
    )
    if not read:
        raise SiteError(f"`{' '.join(PARTITIONS)}` shows no partition: {partitions.strip()[:80]!r}")
    return read


def hosts(ask: Ask, queue: str | None) -> tuple[str, ...]:
    """The nodes of partitions, named as in 'a,b', or of the default partition for None. Raises SiteError."""
    rows = [line.split("|") for line in ask(NODE_NAMES).splitlines()]
    named = [(row[0].strip(), row[1].strip()) for row in rows if len(row) == 2]
    wanted = queue.split(",") if queue else [name.rstrip("*") for name, _ in named if name.endswith("*")]
    return tuple(dict.fromkeys(node for name, node in named if name.rstrip("*") in wanted))


def settings(text: str) -> dict[str, str]:
    """The settings in the output of `scontrol show config`, by name."""
    return {key: value.strip() for key, value in re.findall(r"^(\w+)\s+= (.*)$", text, re.MULTILINE)}


def _queue(words: dict[str, str], kinds: tuple[NodeKind, ...], accounts: Sequence[str], free: int | None) -> Queue:
    most = words.get("MaxNodes", "")
    return Queue(
        words["PartitionName"],
        kinds,
        duration_s(words.get("MaxTime", "")),
        int(most) if most.isdecimal() else None,
        words.get("Default") == "YES",
        _closed(words, accounts),
        free=free,
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


def tree(text: str) -> Tree:
    """The switches in `text`.

    Raises SiteError that names a wrong line, or a switch that is not described. If scontrol lists all nodes below a
    higher switch, they are ignored: `Switches` is enough.
    """
    made = _of_lines(text)
    known = {*made.leaves, *made.parents.values()}
    if missing := [child for child in made.parents if child not in known]:
        raise SiteError(f"Slurm's topology is cut off: it does not describe the switches {', '.join(missing[:5])}")
    if not made.leaves:
        raise SiteError("Slurm's topology has no switches; is there a TopologyPlugin=topology/tree?")
    return made


def words_of(line: str) -> dict[str, str]:
    """The words of the form NAME=VALUE in a line that scontrol printed."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _of_lines(text: str) -> Tree:
    leaves: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    for line in _lines(text):
        words = {key.lower(): value for key, value in words_of(line).items()}
        if any(key in words for key in IGNORED):
            continue
        name, nodes, below = (words.get(key) for key in ("switchname", "nodes", "switches"))
        name = name or next((words[key] for key in UNITS if key in words), None)
        if not name or not (nodes or below):
            raise SiteError(f"this is not a line of Slurm's topology: {line[:200]!r}")
        if below and below != "(null)":
            parents |= dict.fromkeys(expand(below), name)
        else:
            leaves[name] = expand(nodes or "")
    return Tree(leaves, parents)


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    lines = (line.partition("#")[0].strip() for line in joined.splitlines())
    return [line for line in lines if line]


def _query(ask: Ask, name: str) -> str:
    """What Slurm prints about a topology, or about the cluster's default for ''."""
    return ask([*TOPOLOGY, *([name] if name else [])])


SWITCHES = SwitchSource(lambda text, _: tree(text), _query)
