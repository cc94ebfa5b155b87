"""Forwards a port on the host of a rank of a running attempt, until the attempt ends."""

from __future__ import annotations

import contextlib
import time

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import DONE, SiteError
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.beside.shell import Beside, beside
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import look

PROGRAM = "torusrun.orchestrator.beside.forwarding.program"
RECORDED_S = 5.0  # for the record of an end that cut the connection
LOOK_S = 0.2


def forward(run: RunFolder, port: int, *, rank: int, host: str, streams: Streams) -> int:
    """Join `streams` to the program that leads to `port` on the host of a rank, or on `host`; DONE at the end of both.

    It ends with the input, or with the attempt and says so. Raises UserError if the run is not running or has no such
    rank or host, SiteError if the host cannot be reached or the connection breaks.
    """
    there = beside(run, rank, host)
    words = process.module(there.plan.python, PROGRAM, there.attempt.folder, str(rank), str(port))
    broken: SiteError | None = None
    try:
        code = there.start(words, terminal=False, streams=streams)
    except SiteError as error:
        code, broken = DONE, error
    if ended := _ended(run, there, wait_s=RECORDED_S if code or broken else 0.0):
        warn(f"attempt {there.attempt.number} of {run.run_id} has ended ({ended}), and so has the forward")
        return DONE
    if broken or code:
        raise broken or SiteError(f"the connection to {there.host} has ended (exit code {code}); forward again")
    return DONE


def _ended(run: RunFolder, there: Beside, wait_s: float) -> str:
    """How the attempt ended, as in 'FAILED: ...'; '' if it has not. The record of its end may come a moment later."""
    until_s = time.monotonic() + wait_s
    with contextlib.suppress(SiteError):  # a damaged record
        while not (end := End.read(there.attempt.end)) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        if end:
            return f"{end.state.value}: {end.reason}"
    if not wait_s:
        return ""
    seen = look(run)
    return f"{seen.state.value}: {seen.reason}" if seen.state.over or seen.attempt != there.attempt.number else ""
