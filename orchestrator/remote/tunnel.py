"""`forward` for a run on a login node: the verb runs there, and a Unix socket of ours leads to the port that it opens.

The login node's port is on its loopback and takes connections of its user alone; so does the port of this machine.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SITE_FAILED, SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.listening import HERE, Listening, joined
from torusrun.orchestrator.remote import call, program
from torusrun.orchestrator.remote.host import LinkLost, LoginHost
from torusrun.orchestrator.remote.remote_runs import Known

LOOK_S = 0.05
MOST_BYTES = 1 << 16  # of what the verb prints before its address


def forward(known: Known, port: int | str, beside: Sequence[str], listen: str) -> int:
    """Lead a local port to `port` beside a rank there, until the verb there ends; its exit code.

    A `port` in words is a role. `beside` are the options that name the rank. Raises UserError if a port cannot be
    opened, LinkLost if the link breaks.
    """
    if not known.host.by_ssh:
        raise UserError(f"{known.host.address}: only `ssh` leads to a port there, and fabric connects to this site")
    listening = Listening(port, listen) if isinstance(port, int) else Listening(1, listen, here=True)
    verb = _Verb(known, str(port), beside)
    if not (far_port := verb.port()):
        return verb.ended()
    with tempfile.TemporaryDirectory(prefix="torusrun-") as folder:
        path = f"{folder}/port"
        tunnel = process.converse(known.host.tunnel(path, far_port))
        try:
            _wait_for(tunnel, path, known.host)
            listening.announce(f"port {port} beside {known.run}" if isinstance(port, int) else f"{port} of {known.run}")
            listening.serve(lambda link: _lead(link, path), lambda: verb.over or tunnel.poll() is not None)
            return verb.ended()
        finally:
            tunnel.terminate()
            tunnel.wait()


class _Verb:
    """The verb on the login node, run by a thread."""

    def __init__(self, known: Known, port: str, beside: Sequence[str]) -> None:
        self._host, self.over = known.host, False
        self._printed, self._code = bytearray(), SITE_FAILED
        self._error: TorusrunError | None = None
        words = call.words("forward", known.run, port, *beside, f"--listen={HERE}:0", "--quiet")
        self._thread = threading.Thread(target=self._run, args=(words,), daemon=True)
        self._thread.start()

    def _run(self, words: dict[str, object]) -> None:
        try:
            self._code = call.call(self._host, words, self._take, call.shown(sys.stderr), limits=call.ENDLESS)
        except TorusrunError as error:
            self._error = error
        self.over = True

    def _take(self, data: bytes) -> None:
        if len(self._printed) < MOST_BYTES:
            self._printed += data

    def port(self) -> int:
        """The port that it has opened on the login node; 0 if it has ended."""
        while not self.over and not self._printed.endswith(b"\n"):
            time.sleep(LOOK_S)
        number = self._printed.strip().rpartition(b":")[2]
        return int(number) if not self.over and number.isdigit() else 0

    def ended(self) -> int:
        """Its exit code. Raises the error of its link."""
        if not self.over:
            raise LinkLost(f"{self._host.address}: the link broke; forward again")
        if self._error:
            raise self._error
        return self._code


def _wait_for(tunnel: subprocess.Popen[bytes], path: str, host: LoginHost) -> None:
    until_s = time.monotonic() + program.LOGIN_S
    while not Path(path).exists():
        if tunnel.poll() is not None or time.monotonic() > until_s:
            assert tunnel.stderr
            tunnel.terminate()
            why = tunnel.stderr.read(MOST_BYTES).decode(errors="replace").strip()
            raise SiteError(f"{host.address}: its port cannot be reached: {why or 'no answer'}")
        time.sleep(LOOK_S)


def _lead(link: socket.socket, path: str) -> None:
    with socket.socket(socket.AF_UNIX) as far, contextlib.suppress(FileNotFoundError):
        far.connect(path)
        joined(link, far)
