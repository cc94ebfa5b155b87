"""When jobs will probably start, by their scheduler: one query per interval for all processes of a user.

An estimate costs the scheduler as much as a state, and changes slowly. So it is queried for those jobs alone that a
user looks at closely, rarely, and shared by all processes on this machine. The file is safe to delete.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base import lock, private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.schedulers import last_action
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.interface import Request

EVERY_S = 300.0  # schedulers plan anew every half a minute to several minutes
LEAST_S = 60.0  # between two queries, also if a job is new
LARGEST_BYTES = 4_000_000
REQUEST = "request "  # begins the key of a request; the id of a job has no blank
NONE_S = 0.0  # in place of a start that the scheduler does not estimate

Kept = dict[str, tuple[float, float]]  # job, or key of a request -> (when it was queried, its start), of time.time()


def of_jobs(client: Client, jobs: Sequence[str]) -> Mapping[str, float]:
    """The estimated starts of waiting jobs (of time.time()), without jobs that the scheduler has no estimate for.

    If it fails to answer, it has none, and is not queried again within the interval.
    """
    if not jobs or not client.estimates_starts:
        return {}

    def holds(kept: Kept) -> bool:
        known = all(_is_younger(kept, job, EVERY_S) for job in jobs)
        return known or any(_is_younger(kept, job, LEAST_S) for job in kept if not job.startswith(REQUEST))

    def query() -> Mapping[str, float]:
        if not client.left_s:
            return {}  # there was no query, so nothing is known
        with contextlib.suppress(SiteError):
            return {**dict.fromkeys(jobs, NONE_S), **client.starts(jobs)}
        return dict.fromkeys(jobs, NONE_S)

    kept = _shared(client, holds, query)
    return {job: kept[job][1] for job in jobs if job in kept and kept[job][1] != NONE_S}


def before_submission(client: Client, script: str, request: Request) -> float | None:
    """The estimated start of a job with this script if it were submitted now (of time.time()); None without one.

    Equal requests share an answer. Raises UserError if the scheduler has no such query, SiteError if it did not answer
    or would refuse the job.
    """
    key = _key(request)
    kept = _shared(
        client,
        lambda kept: _is_younger(kept, key, LEAST_S),
        lambda: {key: client.estimated_start(script, request) or NONE_S},
    )
    return kept[key][1] or None


def _key(request: Request) -> str:
    """The key of a request: the same for runs that differ in their names and folders alone."""
    import hashlib  # it loads OpenSSL, which `status` does not need for this

    same = replace(request, name="", token="", stdout=Path(), stderr=Path())
    return REQUEST + hashlib.sha256(repr(same).encode()).hexdigest()[:16]


def _shared(client: Client, holds: Callable[[Kept], bool], query: Callable[[], Mapping[str, float]]) -> Kept:
    """The kept starts if they hold, or else with those of a new query, which one process at a time sends."""
    states = last_action.place(client.scheduler)
    place = states.with_name(f"{states.stem}-starts.json")
    kept = _read(place)
    if holds(kept):
        return kept
    with ExitStack() as stack:
        with contextlib.suppress(SiteError):  # a home folder that cannot be written to: each process sends its own
            private.make(place.parent)
            stack.enter_context(lock.held(place.with_suffix(".lock"), wait_s=client.left_s))
        kept = _read(place)
        if not holds(kept):
            found, now_s = query(), time.time()
            recent = {key: old for key, old in kept.items() if 0 <= now_s - old[0] < EVERY_S}
            kept = {**recent, **{key: (now_s, start_s) for key, start_s in found.items()}}
            with contextlib.suppress(OSError):  # a full disk
                private.write_bytes(place, json.dumps(kept).encode())
    return kept


def _is_younger(kept: Kept, key: str, age_s: float) -> bool:
    return key in kept and 0 <= time.time() - kept[key][0] < age_s


def _read(place: Path) -> Kept:
    """The kept starts; {} if there are none, or if they cannot be read."""
    try:
        found: Kept = record_of(dict[str, tuple[float, float]], parsed(private.read_bytes(place, LARGEST_BYTES)), str)
    except (OSError, ValueError):
        return {}
    return found
