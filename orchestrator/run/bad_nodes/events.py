"""The events of the memory of bad nodes: one JSON line each, with their kind as `event` and time.time() as `t`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Annotated

from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.keys.kinds import BLAMES, EXPIRIES_S
from torusrun.orchestrator.place.hosts.hostlist import LONGEST_HOST
from torusrun.training.recipe.key import Limits, Pattern

HOST = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_HOST - 1}}}"
HostName = Annotated[str, Pattern("a name of a host", HOST)]  # safe in a scheduler's requests
DAY_S = 86400.0
LONGEST_REASON, LONGEST_EVIDENCE = 60, 300  # characters

Time = Annotated[float, Limits(at_least=0)]


@dataclass(frozen=True)
class Blamed:
    """A host was blamed by the end of an attempt, by a check of a job, or by its user (`run` is '', `attempt` 0).

    The host is bad from `after` blames by different attempts within `for_s` seconds on, for `for_s` seconds. A blame
    with `after` 1 is certain.
    """

    site: str
    host: HostName
    reason: str
    evidence: str = ""
    run: str = ""
    attempt: int = 0
    after: Annotated[int, BLAMES] = 1
    for_s: Annotated[float, EXPIRIES_S] = DAY_S
    time_s: Time = field(default=0.0, kw_only=True)


@dataclass(frozen=True)
class Forgiven:
    """Earlier blames of a host do not count any more."""

    site: str
    host: HostName
    time_s: Time = field(default=0.0, kw_only=True)


Event = Blamed | Forgiven
KINDS: dict[str, type[Blamed] | type[Forgiven]] = {"blamed": Blamed, "forgiven": Forgiven}
NAMES = {kind: name for name, kind in KINDS.items()}


def as_line(event: Event) -> str:
    """The line of an event. Long texts are cut."""
    details = asdict(event)
    time_s = details.pop("time_s")
    for key, longest in (("reason", LONGEST_REASON), ("evidence", LONGEST_EVIDENCE)):
        if key in details:
            details[key] = plain(details[key])[:longest]
    return json.dumps({"t": round(time_s, 3), "event": NAMES[type(event)], **details})


def from_line(line: bytes) -> Event | None:
    """The event in a line; None if it is incomplete or not valid."""
    try:
        value = dict(parsed(line))
        event: Event = record_of(KINDS[value["event"]], {**value, "time_s": value.get("t")})
    except (ValueError, TypeError, KeyError):
        return None
    return event
