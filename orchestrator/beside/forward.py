"""Forwards a local port to a port on the host of a rank of a running attempt, until the attempt ends."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import DONE, SiteError
from torusrun.orchestrator.base.listening import Listening, read_place
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.beside import leading
from torusrun.orchestrator.beside.shell import beside
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.run.state.roles import port_of
from torusrun.orchestrator.schedulers import client

PROGRAM = "torusrun.orchestrator.beside.leading"
GONE_LOOK_S = 60.0  # between looks for an attempt without a record of its end: it may have been killed

Start = Callable[[Streams], int]
Lead = Callable[[Any, leading.Pieces], None]


def forward(run: RunFolder, port: int | str, *, rank: int, listen: str, role: str = "") -> int:
    """Lead a local port (base/listening.py) to `port` on the host of a rank; DONE at the attempt's end.

    A `port` in words is a role: its own port, on its first rank's host. Raises UserError if the run is not running or
    has no such rank, or if the local port cannot be opened.
    """
    if isinstance(port, str):
        read_place(1, listen)
        place = beside(run, 0, port)
        port = port_of(place.attempt, port)
    else:
        read_place(port, listen)  # a mistake in the request comes before the state of the run
        place = beside(run, rank, role)
    here = client.of(place.plan.site).scheduler.traits.one_machine or place.host == socket.gethostname()
    listening = Listening(port, listen, here=here)
    words = process.module(place.plan.python, PROGRAM, str(port))
    attempt = _Attempt(run, place.attempt)
    listening.announce(f"port {port} of {place.host}")
    listening.serve(
        lambda link: carry(link, lambda streams: place.start(words, terminal=False, streams=streams)), attempt.is_over
    )
    warn(f"attempt {place.attempt.number} of {run.run_id} has ended ({attempt.end}), and so has the forward")
    return DONE


def carry(link: Any, start: Start, lead: Lead = leading.lead) -> None:
    """Have `lead` join a connection to a program that `start` runs with these streams. Raises SiteError, OSError."""
    (their_input, output), (input_, their_output) = os.pipe(), os.pipe()
    failed: list[SiteError] = []

    def run() -> None:
        try:
            start(Streams(their_input, their_output))
        except SiteError as error:
            failed.append(error)
        finally:
            os.close(their_input)
            os.close(their_output)

    program, pieces = threading.Thread(target=run, daemon=True), leading.Pieces(Streams(input_, output))
    program.start()
    try:
        lead(link, pieces)
    except SiteError as error:
        raise failed[0] if failed else error from None
    finally:
        pieces.shutdown(socket.SHUT_RDWR)  # the program ends with its input
        program.join()
        pieces.close()


class _Attempt:
    """Looks whether an attempt has ended; `end` says how, as in 'FAILED: ...'."""

    def __init__(self, run: RunFolder, attempt: Attempt) -> None:
        self._run, self._attempt, self.end = run, attempt, ""
        self._look_s = time.monotonic() + GONE_LOOK_S

    def is_over(self) -> bool:
        with contextlib.suppress(SiteError):  # a damaged record
            if end := End.read(self._attempt.end):
                self.end = f"{end.state.value}: {end.reason}"
                return True
        if time.monotonic() > self._look_s:
            self._look_s = time.monotonic() + GONE_LOOK_S
            seen = look(self._run)
            if seen.state.over or seen.attempt != self._attempt.number:
                self.end = f"{seen.state.value}: {seen.reason}"
        return bool(self.end)
