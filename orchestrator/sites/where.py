"""Where a run could start, and when: each queue of a site, by the scheduler's own answer about the job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.private import plain
from torusrun.orchestrator.base.shown.numbers import duration
from torusrun.orchestrator.base.shown.table import Column, Long, Table
from torusrun.orchestrator.run.attempts.submit import proposed
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts, NodeKind, Queue
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.training.counted import counted

NOW, LATER, POSSIBLE, NOT_KNOWN, NEVER = "now", "later", "can start", "not known", "never"
BEST_FIRST = (NOW, LATER, POSSIBLE, NOT_KNOWN, NEVER)
OF_NODES: Mapping[str, Callable[[float], str]] = {
    "cpus": lambda number: counted(int(number), "core"),
    "gpus": lambda number: counted(int(number), "GPU"),
    "memory_bytes": lambda number: f"{number / 2**30:.1f} GiB",
}
SAID = {"time_s": duration, "nodes": lambda number: counted(int(number), "node"), **OF_NODES}
SOON_S = 60.0  # an estimated start within this time is now: Slurm estimates to the minute


@dataclass(frozen=True)
class Place:
    """A queue of a site, and whether the run can start in it.

    `outcome` is one of BEST_FIRST, `start_s` the scheduler's estimate (of time.time()), None without one. `queue` is
    '' if the site has no queues, or does not list them. `free` and `nodes` are None if the scheduler does not say.
    """

    site: str
    queue: str
    outcome: str
    why: str = ""
    start_s: float | None = None
    free: int | None = None
    nodes: int | None = None
    usual: bool = False  # the queue that a submission without --queue uses

    @property
    def possible(self) -> bool:
        return self.outcome in (NOW, LATER, POSSIBLE)

    @property
    def start(self) -> str:
        """When the run would start, in words."""
        if self.outcome != LATER or self.start_s is None:
            return self.outcome
        return f"in {duration(max(0.0, self.start_s - time.time()))}"

    @property
    def order(self) -> tuple[int, float, bool, int]:
        """Sorts the earliest start first; where no start is estimated, the usual queue, then the most free nodes."""
        start_s = 0.0 if self.outcome == NOW else self.start_s or 0.0
        return BEST_FIRST.index(self.outcome), start_s, not self.usual, -(self.free or 0)


@dataclass(frozen=True)
class Places:
    """The answer of `torusrun where --json`."""

    places: tuple[Place, ...]


def places(site: str, planned: Plan) -> Iterator[Place]:
    """Every queue of the plan's site, whose scheduler is on this machine. `site` is the name that users give it."""
    if schedulers.get(planned.site.scheduler).traits.one_machine:
        yield Place(site, "", NOW, "this machine", usual=True)
        return
    asked = client.of(planned.site)
    wanted = planned.run.queue or planned.site.queue
    try:
        facts = asked.describe() if asked.can_describe else ClusterFacts("")
    except SiteError as error:
        yield Place(site, "", NOT_KNOWN, str(error))
        return
    reservation = planned.site.request.reservation
    names = wanted.split(",") if wanted else []  # Slurm takes several partitions
    if reservation and facts.reservations is not None:
        names = []  # it has a queue of its own
    for queue in offered(facts, reservation, wanted) or [Queue(wanted or "")]:
        usual = queue.name in names if names else queue.is_default
        yield _judged(asked, planned, replace(Place(site, queue.name, NOT_KNOWN), usual=usual), queue)


def offered(facts: ClusterFacts, reservation: str | None, wanted: str | None = None) -> Sequence[Queue]:
    """The queues that a job may go to, which names this reservation or wants this queue.

    Where a reservation has a queue of its own (PBS), a job in it has that alone, and no other job has it.
    """
    known = facts.reservations or {}
    if (name := re.split("[.@]", reservation or wanted or "")[0]) in known:  # an id is NAME.SERVER
        return [known[name]]
    if reservation and facts.reservations is not None:
        return [Queue(reservation, is_default=True, closed="its server has no such reservation")]
    return facts.queues


def _judged(asked: Client, planned: Plan, place: Place, queue: Queue) -> Place:
    place = replace(place, free=queue.free, nodes=queue.all_nodes or None)
    try:
        request, script = proposed(replace(planned, run=replace(planned.run, queue=queue.name or None)))
        refusal, start_s = _answer(asked, script, request)
    except UserError as error:
        return replace(place, outcome=NEVER, why=str(error))
    except SiteError as error:
        return replace(place, why=str(error))
    limit = misfit(queue, request)
    if limit and request.qos and not (refusal or queue.closed):
        return replace(place, outcome=NOT_KNOWN, why=f"{limit}, unless the QOS {request.qos} lifts this")
    if refusal or limit:  # Slurm may take a job that its limits then keep waiting (EnforcePartLimits)
        return replace(place, outcome=NEVER, why="; ".join(filter(None, [limit, refusal])))
    if start_s is None:
        return replace(place, outcome=POSSIBLE)
    return replace(place, outcome=NOW if start_s <= time.time() + SOON_S else LATER, start_s=start_s)


def _answer(asked: Client, script: str, request: Request) -> tuple[str, float | None]:
    """(why the scheduler would refuse the job, '' if it would not; the start that it estimates, None without one).

    Raises SiteError if it does not answer.
    """
    said, silent = asked.tried(script, request), asked.scheduler.traits.silent
    if said is None:
        return "", None
    answer = said.stderr.strip() or said.stdout.strip() or f"its exit code is {said.exit_code}"
    if said.exit_code and silent and re.search(silent, answer):
        raise SiteError(answer)
    if said.exit_code:
        return answer, None
    room = asked.tried(script, request, now=True)
    return "", time.time() if room and not room.exit_code else asked.scheduler.start_in(answer)


def misfit(queue: Queue, request: Request) -> str:
    """Why a queue with these limits cannot run the job, in words; '' if no limit that it reports is in the way."""
    ends = {end.name: _beyond(end, request) for end in queue.ends}
    nowhere = "; ".join(f"{name}: {why}" for name, why in ends.items()) if all(ends.values()) else ""
    return queue.closed or _beyond(queue, request) or nowhere


def _beyond(queue: Queue, request: Request) -> str:
    """As `misfit`, by the limits of the queue itself."""
    asked = _in_all(request)
    most = {"time_s": queue.time_s, "nodes": queue.nodes, **queue.most}
    for key, number in asked.items():
        limit, least = most.get(key), queue.least.get(key, 0)
        if limit is not None and number > limit:
            longest = "longest job is" if key == "time_s" else "largest job has"
            return f"its {longest} {SAID[key](limit)}, the run asks for {SAID[key](number)}"
        if number < least:
            shortest = "shortest job is" if key == "time_s" else "smallest job has"
            return f"its {shortest} {SAID[key](least)}, the run asks for {SAID[key](number)}"
    if request.ask or not queue.kinds:  # the site's own words may name other nodes
        return ""
    fitting = sum(kind.nodes for kind in queue.kinds if _fits(kind, request))
    if fitting >= request.nodes:
        return ""
    each = " and ".join(SAID[key](number / request.nodes) for key, number in asked.items() if key in OF_NODES)
    return f"it has {counted(fitting, 'node')} with {each}, the run asks for {request.nodes}"


def _in_all(request: Request) -> dict[str, float]:
    """What all nodes of a job have together, by the keys of Queue.most; a site's own words may name other nodes."""
    each = {
        "cpus": request.ranks_per_node * request.cpus_per_rank,
        "gpus": request.gpus_per_node,
        "memory_bytes": request.memory_bytes,
    }
    of_nodes = {} if request.ask else {key: request.nodes * number for key, number in each.items() if number}
    return {"time_s": request.time_s, "nodes": request.nodes, **of_nodes}


def _fits(kind: NodeKind, request: Request) -> bool:
    return (
        kind.gpus >= request.gpus_per_node
        and (not request.gpu_type or kind.gpu_type in (None, request.gpu_type))
        and (kind.cpus is None or kind.cpus >= request.ranks_per_node * request.cpus_per_rank)
        and (kind.memory_bytes is None or not request.memory_bytes or kind.memory_bytes >= request.memory_bytes)
    )


def _free(place: Place) -> str | None:
    return None if place.free is None else f"{place.free} of {place.nodes}" if place.nodes else str(place.free)


COLUMNS: tuple[Column[Place], ...] = (
    Column("SITE", lambda place: place.site, right=False),
    Column("QUEUE", lambda place: plain(place.queue) or None, right=False),
    Column("START", lambda place: place.start, right=False),
    Column("FREE NODES", _free, right=False, left_out=1),
    Column("WHY", lambda place: Long(plain(place.why), below=True) if place.why else None),
    *(Column(None, attrgetter(field.name), key=field.name) for field in fields(Place)),
)


def table(found: Sequence[Place]) -> Table[Place]:
    return Table(COLUMNS, sorted(found, key=lambda place: place.order))
