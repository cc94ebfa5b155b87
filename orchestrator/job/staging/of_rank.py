"""The wrapper's part: the first rank of a host makes the copies, for which the others wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, StoppedBeforeStart
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.job.staging.chain import Chain
from torusrun.orchestrator.job.staging.node_folder import hold, place, ready, run_folder
from torusrun.orchestrator.job.staging.of_host import OfHost
from torusrun.orchestrator.job.staging.order import StagedHere, StageOrder
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.files.staged import PATHS

LOOK_S = 0.1


def staged(order: StageOrder, number: int, placement: Placement, attempt: Attempt, held: ExitStack) -> StagedHere:
    """The copies of rank `number`, once all hosts have theirs. They cannot be removed until `held` is closed.

    A request to stop raises StoppedBeforeStart in here, and until the program has its own handlers. Raises SiteError.
    """
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(name, _stop)
    slot, folder = placement.slots[number], place(order.folder, os.environ)
    if slot.local_rank == 0:
        first = {slot.host: slot.rank for slot in placement.slots if slot.local_rank == 0}
        hosts, shown = placement.hosts, partial(_show, attempt, len(first))
        chain = Chain(
            hosts.index(slot.host), hosts, lambda index: attempt.stage_place(first[hosts[index]]),
            key=bytes.fromhex(order.secret), interface=order.interface, shown=shown,
        )  # fmt: skip
        with chain:
            done = OfHost(order, folder, str(attempt.folder), chain, held).run()
            if not chain.above:
                shown("", *chain.totals, done)
    while not ready(folder, order.run, str(attempt.folder)):
        time.sleep(LOOK_S)
    here = read_staged(order, os.environ)
    for path in (here.folder, *here.copies.values()):
        hold(Path(path), held)
    return here


def read_staged(order: StageOrder, inherited: Mapping[str, str]) -> StagedHere:
    """The copies on this host, by the environment of a rank's wrapper. Raises SiteError if there are none."""
    run = run_folder(place(order.folder, inherited), order.run)
    kept = read_object(run / PATHS) or {}
    return StagedHere(str(run), {str(source): str(copy) for source, copy in kept.items()})


def _show(
    attempt: Attempt,
    hosts: int,
    name: str,
    written_bytes: int,
    to_write_bytes: int,
    done: Mapping[str, Any] | None = None,
) -> None:
    """Record how far all hosts are, for `status` and the watch for hangs. A full disk is noticed elsewhere."""
    with suppress(SiteError):
        numbers = {"written_bytes": written_bytes, "to_write_bytes": to_write_bytes, "hosts": hosts, "t": time.time()}
        write_json(attempt.staged, {"name": name, **numbers, **({"done": dict(done)} if done else {})})


def _stop(number: int, frame: FrameType | None) -> None:
    raise StoppedBeforeStart
