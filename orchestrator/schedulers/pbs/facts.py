"""The cluster as PBS reports it: queues with their limits, and hosts with their resources.

PBS's JSON is invalid if a value is `nan` or `.5`, so commands request text.
"""

from __future__ import annotations

import contextlib
import grp
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.schedulers.cluster_facts import (
    Ask,
    ClusterFacts,
    NodeKind,
    Queue,
    counted,
    duration_s,
    size_bytes,
)
from torusrun.orchestrator.schedulers.words import user_name

QUEUES = ("qstat", "-Q", "-f")
SERVER = ("qstat", "-B", "-f")
CLOSED = {"enabled": "it is disabled", "started": "it is stopped"}
LIMITED = {"nodect": "nodes", "ncpus": "cpus", "ngpus": "gpus", "walltime": "time_s", "mem": "memory_bytes"}
READ = {"walltime": duration_s, "mem": size_bytes}
OF_ALL_JOBS = ("max_queued", "queued_jobs_threshold", "max_run")  # their number; with _res, what they have together
Record = Mapping[str, str]
NODES = ("pbsnodes", "-av")  # without -v it merges the vnodes of a host, and lacks some of their resources
RESERVATIONS = ("pbs_rstat", "-f")
RESOURCE = "resources_available."
SWITCH = "switch"  # the resource that names a node's switch, unless topology.attribute says otherwise


def describe(ask: Ask, own: Mapping[str, Collection[str]] | None = None) -> ClusterFacts:
    """Query PBS for this user, or for a user with `own` names. Raises SiteError if it does not list its queues."""
    listed = records(ask(QUEUES), "Queue: ")
    (server, *_) = [*records(ask(SERVER), "Server: ").values(), {}]
    _check_family(server)
    vnodes: Mapping[str, Record] = {}
    remarks = []
    try:
        vnodes = vnodes_in(ask(NODES))
    except SiteError as error:
        remarks.append(f"no nodes are known: {error}")
    reserved = _reserved(ask, listed)
    queues = Queues(listed, vnodes, server, own or _own_names(), reserved or {})
    resources = frozenset(name for vnode in vnodes.values() for name in resources_of(vnode))
    return ClusterFacts(
        f"pbs_version {server['pbs_version']}" if "pbs_version" in server else "",
        queues.all(),
        server.get("server_host"),
        resources=resources,
        topology={"source": "pbs"} if SWITCH in resources else None,
        asks_memory=True,  # PBS's hook for cgroups gives 256 MB to a job that asks for none
        commands={
            "scheduler": " ".join(SERVER),
            "queues": " ".join(QUEUES),
            "nodes": " ".join(NODES),
            "topology": " ".join(NODES),
        },
        remarks=tuple(remarks),
        reservations=None if reserved is None else {name: queues.queue(name) for name in reserved},
    )


def _reserved(ask: Ask, listed: Mapping[str, Record]) -> dict[str, Record] | None:
    """The reservations, by the queues that PBS makes for them; None if it does not list them."""
    with contextlib.suppress(SiteError):
        reservations = records(ask(RESERVATIONS), "Resv ID: ", "").values()
        names = {of["queue"]: of for of in reservations if re.fullmatch(r"[RSM]\d+", of.get("queue", ""))}
        return {name: of for name, of in names.items() if name in listed}
    return None


def _check_family(server: Record) -> None:
    """Raise SiteError if this is not the server of OpenPBS or PBS Pro: their relatives have the same commands.

    TORQUE's version is 2 to 7, and its server has the attribute next_job_number. PBS Pro's is 10 and more, or is
    written as in PBSPro_9.2.
    """
    version = server.get("pbs_version", "")
    number = re.match(r"\d+", version)
    if "next_job_number" in server or (number and int(number[0]) < 10):
        raise SiteError(
            f"this is TORQUE (pbs_version {version}), which is not supported: it has no `select`; torusrun knows "
            "OpenPBS and PBS Pro"
        )
    if not version:
        raise SiteError(f"`{' '.join(SERVER)}` shows no pbs_version: this is neither OpenPBS nor PBS Pro")


@dataclass(frozen=True)
class Queues:
    """The queues of a server and their vnodes, its attributes, this user's names by kind, and reservations by queue."""

    listed: Mapping[str, Record]
    vnodes: Mapping[str, Record]
    server: Record
    own: Mapping[str, Collection[str]] = field(default_factory=dict)
    reserved: Mapping[str, Record] = field(default_factory=dict)

    def all(self) -> tuple[Queue, ...]:
        """All queues but those of reservations. Raises SiteError if there are none."""
        names = [name for name, record in self.listed.items() if record.get("queue_type") in ("Execution", "Route")]
        if not names:
            raise SiteError(f"`{' '.join(QUEUES)}` shows no queue")
        return tuple(self.queue(name) for name in names if name not in self.reserved)

    def queue(self, name: str) -> Queue:
        """The queue `name`. A routing queue has the nodes of all queues that it leads to, and their widest limits."""
        record, ends, is_reserved = self.listed[name], self.leads_to(name), name in self.reserved
        closed = self.closed(name)
        shut = {end: why for end in ends if end != name and (why := self.closed(end))}
        if record.get("from_route_only") == "True":
            closed.append("only routing queues lead to it")
        if shut and len(shut) == len(ends):
            closed += [f"it leads to {end}, and {' and '.join(why)}" for end, why in shut.items()]
        open_ends = tuple(self.queue(end) for end in ends if end not in shut and end != name)
        nodes = {name: vnode for end in ends for name, vnode in self.vnodes_of(end).items()}
        # a job that is larger than those after the first may be taken, and then never starts
        most = self.limits(record, "resources_max", "resources_available", *(f"{kind}_res" for kind in OF_ALL_JOBS))
        limit = _widest("nodes", most, open_ends)
        return Queue(
            name,
            counted(_kind([*map(resources_of, host)]) for host in _hosts(nodes)),
            _widest("time_s", most, open_ends),
            int(limit) if limit is not None else None,
            is_reserved or name == self.server.get("default_queue"),
            " and ".join(closed),
            free=None if is_reserved else sum(map(_is_free, _hosts(nodes))),
            least=self.limits(record, "resources_min"),
            most=most,
            ends=open_ends,
        )

    def limits(self, record: Record, *of: str) -> dict[str, float]:
        """The limits of a job in a queue; the least, if there are several of a resource."""
        texts = [(key, text) for key in LIMITED for kind in of for text in self.values(record, f"{kind}.{key}")]
        known = [(LIMITED[key], limit) for key, text in texts if (limit := READ.get(key, _number)(text)) is not None]
        return dict(sorted(known, key=itemgetter(1), reverse=True))

    def values(self, record: Record, key: str) -> list[str]:
        """A queue's value, or else the server's. A limit on all jobs together is of both, and for this user and for all
        users, as in [u:PBS_GENERIC=2][u:me=4][o:PBS_ALL=9]; those of groups and projects are not read.
        """
        values = [holder[key] for holder in (record, self.server) if key in holder]
        if not key.startswith(OF_ALL_JOBS):
            return values[:1]
        limits = [dict(re.findall(r"\[(\w:[^]=]+)=([^]]*)\]", value)) for value in values]
        me = [*(f"u:{name}" for name in self.own.get("user", ())), "u:PBS_GENERIC"]
        return [of[who] for of in limits for who in (next(filter(of.get, me), ""), "o:PBS_ALL") if who in of]

    def leads_to(self, name: str, passed: tuple[str, ...] = ()) -> list[str]:
        """The execution queues of this server that a job in this queue can reach: itself, or a routing queue's ends."""
        record = self.listed.get(name, {})
        if record.get("queue_type") != "Route":
            return [name] if record else []
        here = self.server.get("server_host", "").partition(".")[0]
        ends: dict[str, None] = {}
        for word in _words(record.get("route_destinations", "")):
            to, _, host = word.partition("@")
            if to not in (*passed, name) and host.partition(".")[0] in ("", here):
                ends |= dict.fromkeys(self.leads_to(to, (*passed, name)))
        return list(ends)

    def closed(self, name: str) -> list[str]:
        """Why a queue takes no jobs of this user; [] if it does. The server may know this host by a name of its own, so
        access lists of hosts are not read. The queue of a reservation takes jobs before it is started.
        """
        record = self.listed[name]
        lists = [f"acl_{kind}s" for kind, names in self.own.items() if _left_out(record, kind, names)]
        waits = name in self.reserved
        shut = [why for key, why in CLOSED.items() if record.get(key) == "False" and not (waits and key == "started")]
        none = [f"{kind} is 0 for you" for kind in OF_ALL_JOBS if "0" in self.values(record, kind)]
        return [*shut, *(f"its {listed} leave you out" for listed in lists), *none]

    def vnodes_of(self, name: str) -> dict[str, Record]:
        """The vnodes of a reservation, or bound to an execution queue; else all that are bound to no queue."""
        if name in self.reserved:  # resv_nodes is as (A:ncpus=4+B:ncpus=4)+(A:ncpus=4)
            reserved = re.findall(r"[(+]([^:()+]+)", self.reserved[name].get("resv_nodes", ""))
            return {vnode: self.vnodes[vnode] for vnode in reserved if vnode in self.vnodes}
        bound = {vnode: record for vnode, record in self.vnodes.items() if name in _bound(record)}
        return bound or {vnode: record for vnode, record in self.vnodes.items() if not _bound(record)}


def _number(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _left_out(record: Record, kind: str, names: Collection[str]) -> bool:
    """Whether a queue's access list of this kind leaves out all `names`, as acl_check in OpenPBS's attr_fn_acl.c."""
    admitted = record.get(f"acl_{kind}_enable") != "True"
    for entry in () if admitted else _words(record.get(f"acl_{kind}s", "")):
        name, _, host = entry.lstrip("+-").partition("@")
        # a host may be named otherwise by the server: such an entry refuses nobody here
        if name in names and (host in ("", "*") or not entry.startswith("-")):
            return entry.startswith("-")
        admitted = entry == "+" if entry in ("+", "-") else admitted
    return not admitted


def _own_names() -> dict[str, Collection[str]]:
    """The names by which access lists know this user."""
    me, groups = user_name(), []
    for number in os.getgrouplist(me, os.getgid()):
        with contextlib.suppress(KeyError):  # some have no name
            groups.append(grp.getgrgid(number).gr_name)
    return {"user": [me], "group": groups}


def _widest(name: str, most: Mapping[str, float], ends: Sequence[Queue]) -> float | None:
    """The most that a job may ask for, by the queue's own limit and the widest of the queues that it leads to."""
    known = [end.most[name] for end in ends if name in end.most]
    widest = [max(known)] if known and len(known) == len(ends) else []
    return min([*widest, *([most[name]] if name in most else [])], default=None)


def _bound(vnode: Record) -> list[str]:
    """The only queues that a vnode serves, by its attribute or by the usual resource; [] if it serves all."""
    return _words(vnode.get("queue") or resources_of(vnode).get("qlist", ""))


def _words(listed: str) -> list[str]:
    return [word.strip() for word in listed.split(",") if word.strip()]


def _hosts(vnodes: Mapping[str, Record]) -> list[list[Record]]:
    """The vnodes of each host. PBS spreads the chunk of a job over the vnodes of one host."""
    hosts: dict[str, list[Record]] = {}
    for name, vnode in vnodes.items():
        hosts.setdefault(host_of(name, vnode), []).append(vnode)
    return list(hosts.values())


def _is_free(vnodes: list[Record]) -> bool:
    """Whether a host takes jobs and has none."""
    return all(vnode.get("state") == "free" and not vnode.get("jobs") for vnode in vnodes)


def _kind(vnodes: list[Record]) -> NodeKind:
    """One host with the sum of its vnodes' resources; a value such as @VNODE counts at that vnode."""
    cpus, gpus = ([int(v[key]) for v in vnodes if v.get(key, "").isdecimal()] for key in ("ncpus", "ngpus"))
    memory = [size for v in vnodes if (size := size_bytes(v.get("mem", ""))) is not None]
    types = [v["gpu_type"] for v in vnodes if v.get("gpu_type")]
    return NodeKind(
        1, sum(cpus) if cpus else None, sum(memory) if memory else None, sum(gpus), types[0] if types else None
    )


def records(text: str, head: str, indent: str = "    ") -> dict[str, dict[str, str]]:
    """The attributes of all objects in a list of PBS, by name.

    `head` begins the line of a name, and the pattern `indent` that of an attribute; other lines are ignored. A long
    value continues in lines that begin with a tab. The first record of a name, and the first value of an attribute,
    count: a second value is not the server's. Only a limit is a list of lines, each as in [u:PBS_GENERIC=2].
    """
    attribute = re.compile(indent + r"([A-Za-z_][\w.-]*) = (.*)")
    objects: dict[str, dict[str, str]] = {}
    attributes: dict[str, str] = {}
    for line in text.replace("\n\t", "").split("\n"):
        if line.startswith(head) and line[:1].strip():
            attributes = {}
            objects.setdefault(line.removeprefix(head).strip(), attributes)
        elif match := attribute.fullmatch(line):
            first = attributes.setdefault(match[1], match[2].strip())
            if first.startswith("[") and match[2].startswith("[") and match[2].strip() != first:
                attributes[match[1]] += match[2].strip()
    return objects


def vnodes_in(text: str) -> dict[str, dict[str, str]]:
    """The attributes of every vnode by its name. Raises SiteError if `text` is not output of pbsnodes."""
    listed = {name: values for name, values in records(text, "", " +").items() if values}  # a warning has none
    if not listed:
        raise SiteError(f"this is not the output of `{' '.join(NODES)}`: {text.strip()[:80]!r}")
    return listed


def host_of(name: str, vnode: Mapping[str, str]) -> str:
    """The host of a vnode; several vnodes may share a host."""
    return vnode.get(f"{RESOURCE}host") or vnode.get("Mom") or name


def resources_of(vnode: Mapping[str, str]) -> dict[str, str]:
    """The resources of a vnode. PBS knows their names without case, so these are in lower case."""
    return {key.removeprefix(RESOURCE).lower(): value for key, value in vnode.items() if key.startswith(RESOURCE)}
