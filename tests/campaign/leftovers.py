"""The leftovers of a run: processes, jobs, half-written files, mixed rows and checkpoints of two attempts."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.e2e.places import Place, ledger

GONE_WITHIN_S = 60.0  # a busy machine kills slowly
LARGEST_TAIL = 1500


def after(place: Place, run: Path) -> list[str]:
    """The leftovers of an ended run, in words."""
    jobs = {event["job"] for event in ledger(run, "submitted")}
    processes = _still(lambda: [str(process) for process in place.processes(run)])
    queued = _still(lambda: [f"job {job} in the queue" for job in jobs.intersection(place.queued())])
    return [*processes, *queued, *files(run), *mixed(run)]


def remove(place: Place, run: Path) -> None:
    """End the jobs and the processes of a run, in any state."""
    jobs = {event["job"] for event in ledger(run, "submitted")}
    for job in jobs.intersection(place.queued()):
        place.run(place.end_by_hand(job), timeout_s=30)
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while (left := place.processes(run)) and time.monotonic() < deadline_s:
        for process in left:
            with suppress(ProcessLookupError, AssertionError):  # it ended meanwhile
                place.signal(process.host, process.pid, signal.SIGKILL)
        time.sleep(0.5)


def evidence(run: Path) -> dict[str, Any]:
    """The records of a run's attempts, for the search for a defect."""
    kept: dict[str, Any] = {"ledger": ledger(run)}
    for attempt in sorted((run / "attempts").glob("[0-9]*")):
        records = [*attempt.glob("end.json"), *attempt.glob("done.json"), *attempt.glob("ranks/*.end.json")]
        texts = [*attempt.glob("job.err"), *attempt.glob("logs/*.log")]
        said = {str(path.relative_to(attempt)): _tail(path) for path in [*sorted(records), *sorted(texts)]}
        kept[attempt.name] = {name: text for name, text in said.items() if text}
    return kept


def _still(there: Callable[[], list[str]]) -> list[str]:
    """The things that are still there after the time in which they should end."""
    deadline_s = time.monotonic() + GONE_WITHIN_S
    while (left := there()) and time.monotonic() < deadline_s:
        time.sleep(0.3)
    return left


def files(run: Path) -> list[str]:
    unfinished = [*run.rglob(".tmp*"), *(run / "attempts").glob(".[0-9]*")]
    return [str(path.relative_to(run)) for path in unfinished]


def mixed(run: Path) -> list[str]:
    """Attempts that wrote after a later attempt had begun to write."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    manifests = [json.loads(path.read_text()) for path in sorted((run / "checkpoints").glob("step-*/manifest.json"))]
    written = {"metrics": rows, "checkpoints": manifests}
    return [f"{what} of two attempts are mixed" for what, by in written.items() if _falls([w["attempt"] for w in by])]


def _falls(numbers: Sequence[int]) -> bool:
    return any(later < earlier for earlier, later in pairwise(numbers))


def _tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-LARGEST_TAIL:].strip()
    except OSError as error:
        return str(error)
