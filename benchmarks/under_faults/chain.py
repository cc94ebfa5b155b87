"""A training over many time limits from one submit, with a host that is lost on the way."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.under_faults.runs import settings
from tests.campaign import leftovers
from tests.campaign.trial import OVER
from tests.campaign.witness import Witness
from tests.e2e.places import Place, assert_same_bits, ledger, metrics

LOST_IN, BACK_IN = 5, 9  # the attempt that loses a host, and the first one that may have it again
LOOK_S = 0.5
WITHIN_S = 3000.0


@dataclass(frozen=True)
class Chain:
    """One run: `causes` counts the ends of its attempts, `jobs` are those of the scheduler, `submits` those by hand.

    `trouble` says what was wrong: other bits, attempts at the same time, processes that were left.
    """

    run: str
    state: str
    attempts: int
    jobs: int
    submits: int
    causes: dict[str, int]
    lost: str
    took_s: float
    trouble: list[str]


def chain(place: Place, limit_s: float, whole: Path, words: Sequence[str]) -> Chain:
    """A run whose attempts have `limit_s` each. Its bits should be those of the run `whole`."""
    begun_s, lost, view = time.time(), "", {"state": "PENDING"}
    run = place.submit(*settings([f"time={limit_s:g}s", *words]))
    with ExitStack() as stack, Witness(place, run) as witness:
        stack.callback(leftovers.remove, place, run)
        back = stack.enter_context(ExitStack())
        while view["state"] not in OVER and time.time() < begun_s + WITHIN_S:
            time.sleep(LOOK_S)
            newest = (metrics(run, "step") or [{"attempt": 0}])[-1]["attempt"]
            if newest >= LOST_IN and not lost:
                lost = _lose(place, run, back)
            if newest >= BACK_IN:
                back.close()
            view = place.view(run)
        trouble = [*witness.overlaps, *leftovers.mixed(run), *_other_bits(run, whole, view)]
    ends = ledger(run, "ended")
    return Chain(
        run.name, view["state"], len(ends), len({event["job"] for event in ledger(run, "started")}),
        len({event["job"] for event in ledger(run, "submitted")}), dict(Counter(event["cause"] for event in ends)),
        lost, time.time() - begun_s, trouble,
    )  # fmt: skip


def _lose(place: Place, run: Path, back: ExitStack) -> str:
    """Take a host other than the first from the newest attempt, or a rank if there is only this machine."""
    hosts = ledger(run, "started")[-1]["hosts"]
    if not place.power_off or not place.power_on or len(hosts) < 2:
        record = run / f"attempts/{ledger(run, 'started')[-1]['attempt']}/ranks/0001.start.json"
        place.kill(hosts[0], json.loads(record.read_text())["pid"])
        return "rank 1"
    place.power_off(hosts[1])
    back.callback(place.power_on, hosts[1])
    return hosts[1]


def _other_bits(run: Path, whole: Path, view: dict[str, str]) -> list[str]:
    try:
        assert view["state"] == "COMPLETED", f"the run is {view['state']}: {view.get('reason', '')}"
        assert_same_bits(run, whole)
    except (AssertionError, OSError, ValueError) as error:
        return [str(error)[:300]]
    return []
