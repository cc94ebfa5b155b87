"""The standby of a job that begins attempts: starts it beside the attempt that runs, and makes it the next one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.job import around, gather
from torusrun.orchestrator.job.standby.word import CHANNEL, READY, TAKEN

LOOK_S = 1.0  # between looks for the first steps of the attempt
ANSWER_S = 5.0  # for the supervisor's answer to the word
END_S = 10.0  # for the end of all its processes


class Standby:
    """The processes of the next attempt of `run`. There are none if they are not `wanted`.

    If the run is `elastic`, they are what is left of the attempt before.
    """

    def __init__(self, run: RunFolder, *, wanted: bool, elastic: bool = False) -> None:
        self._run, self._wanted, self._elastic = run, wanted and not elastic, elastic
        self._beside = 0  # the attempt beside which it was started
        self._lost: list[str] = []  # the hosts that the job had lost by then
        self._looked_s = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    @property
    def ready(self) -> bool:
        """Whether its supervisor waits for the word."""
        if self._channel is None:
            return False
        waiting = select.poll()  # select takes no descriptor above 1023
        waiting.register(self._channel, select.POLLIN)
        return bool(waiting.poll(0))

    def look(self, number: int, lost: Sequence[str]) -> None:
        """Start it once for each attempt, after the attempt's first steps: it should not delay them. Called often."""
        now_s = time.monotonic()
        if not self._wanted or self._beside == number or now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        attempt = self._run.attempt(number)
        with contextlib.suppress(SiteError, OSError):  # without it, the next attempt starts as others do
            if gather.newest_step(self._run, attempt) is None:
                return
            self._beside, self._lost = number, [*lost]
            self._begin(attempt)

    def begin(self, attempt: Attempt, variables: Mapping[str, str], lost: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start an attempt by its script; if the run is elastic, what is left of it in the end is a standby."""
        environment = {**os.environ, **variables}
        if not self._elastic:
            return around.begin(attempt, environment)
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            environment[CHANNEL] = str(theirs.fileno())
            child = around.begin(attempt, environment, [theirs.fileno()])
        self._beside, self._lost, self._child, self._channel = attempt.number, [*lost], child, channel
        return child

    @property
    def remains(self) -> bool:
        """Whether the attempt is over and what is left of it waits for the next one."""
        return self._elastic and self.ready

    def become(
        self, following: Attempt, job: str, variables: Mapping[str, str], lost: Sequence[str]
    ) -> subprocess.Popen[bytes] | None:
        """The process of the attempt `following`, with `variables`; None if the standby cannot be that attempt."""
        if self._child is None:
            return None
        word = {"attempt": following.number, "job": job, "variables": dict(variables)}
        why = self._why_not(following, lost)
        if not why and self._said(json.dumps(word).encode()):
            child = self._child
            if self._elastic:  # it may be left again
                self._beside, self._lost = following.number, [*lost]
            else:
                self._child = None
            return child
        why = why or "it was not ready"
        print(f"torusrun: attempt {following.number} starts without the standby: {why}", flush=True)
        self.end()
        return None

    def _why_not(self, following: Attempt, lost: Sequence[str]) -> str:
        """Why the standby cannot be the attempt `following`, as far as this job knows; '' if it can."""
        if self._beside != following.number - 1 or following.stdout.exists():
            return "it was not started for this attempt"
        if self._lost != [*lost]:
            return "the job has lost hosts on which it waits"
        return "it has ended" if self._child and self._child.poll() is not None else ""

    def end(self) -> None:
        """End the standby, if there is one that did not become an attempt."""
        if self._channel:
            self._channel.close()
            self._channel = None
        if self._child and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGTERM)

    def close(self) -> None:
        """End the standby, and wait until it has ended."""
        self.end()
        if self._child:
            try:
                self._child.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._child.pid, signal.SIGKILL)

    def _begin(self, attempt: Attempt) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._child = process.start(
                ["/bin/bash", attempt.standby_script, f"{self._run.run_id}.{attempt.number}.standby"],
                environment={**os.environ, CHANNEL: str(theirs.fileno())},
                own_group=True,
                cwd=attempt.folder,
                keep=[theirs.fileno()],
                parent_death=signal.SIGKILL,
            )

    def _said(self, word: bytes) -> bool:
        """Whether the supervisor waits, and has taken the word."""
        if not self.ready or not self._channel:
            return False
        self._channel.settimeout(ANSWER_S)
        try:
            self._channel.send(word)
            return self._channel.recv(len(READY)) == READY and self._channel.recv(len(TAKEN)) == TAKEN
        except OSError:
            return False
