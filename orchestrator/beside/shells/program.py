"""The program of a shell on the host of a rank. It connects back to its user, with its own terminal on request.

`orchestrator.beside.shells.program REQUEST`. When the connection ends, it ends the processes that it started.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.beside.shells.addresses import ways
from torusrun.orchestrator.job import shell_requests as requests
from torusrun.orchestrator.job.connection import (
    CALLING,
    CHUNK_BYTES,
    CODE,
    LOOK_S,
    SIZE,
    Connection,
    Frame,
    Proofs,
    written,
)
from torusrun.orchestrator.job.shell_requests import ShellRequest

OPENING_S = 20.0  # to connect and prove, over all addresses together
GONE_S = 2.0  # between SIGHUP and SIGKILL


def main() -> None:
    path = Path(sys.argv[1])
    try:
        asked = requests.read(path)
        connection = connected(asked)
    except (SiteError, OSError) as error:
        return requests.fail(path, str(error))
    try:
        Joined(asked, connection).run()
    except OSError as error:
        with contextlib.suppress(OSError):
            connection.send(Frame.ERRORS, f"torusrun: {asked.argv[0]}: {error.strerror}\n".encode())
            connection.send(Frame.EXIT, CODE.pack(127))


def connected(asked: ShellRequest) -> Connection:
    """The connection to the user's side. Raises SiteError if none of its addresses leads there within OPENING_S."""
    until_s = time.monotonic() + OPENING_S
    with Proofs(asked.key, CALLING) as proofs:
        for address in ways(asked.addresses, asked.network):
            proofs.call(address, asked.port)
        while proofs.waiting and (left_s := until_s - time.monotonic()) > 0:
            if connection := proofs.step(left_s):
                return connection
        wrong = {**proofs.failures, **dict.fromkeys(proofs.waiting, f"no proof within {OPENING_S:g} s")}
    reasons = "; ".join(f"{address}: {why}" for address, why in wrong.items()) or "this node has all its addresses"
    raise SiteError(f"the user's machine cannot be reached on port {asked.port} ({reasons}): {requests.MEND}")


class Joined:
    """A program whose input and outputs are copied over a connection."""

    def __init__(self, asked: ShellRequest, connection: Connection) -> None:
        self.connection, self.wrong = connection, ""
        if asked.terminal:
            self._on_terminal(asked)
        else:
            pipe = subprocess.PIPE
            self.child = subprocess.Popen(asked.argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
            assert self.child.stdin and self.child.stdout and self.child.stderr
            self.input = os.dup(self.child.stdin.fileno())
            self.child.stdin.close()
            self.outputs = {self.child.stdout.fileno(): Frame.OUTPUT, self.child.stderr.fileno(): Frame.ERRORS}

    def _on_terminal(self, asked: ShellRequest) -> None:
        mine, theirs = os.openpty()
        _resize(theirs, asked.rows, asked.columns)
        self.child = subprocess.Popen(
            asked.argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.input, self.outputs = mine, {mine: Frame.OUTPUT}

    def run(self) -> None:
        """Send the program's output until it has ended, and then its exit code."""
        threading.Thread(target=self._hear, daemon=True).start()
        try:
            while self.outputs:
                ready = select.select([*self.outputs], [], [], LOOK_S)[0]
                for descriptor in ready:
                    if content := _read(descriptor):
                        self.connection.send(self.outputs[descriptor], content)
                    else:
                        del self.outputs[descriptor]
                if not ready and self.child.poll() is not None:  # processes that it left may keep them open
                    break
            code = self.child.wait()
            if self.wrong:
                return self.connection.send(Frame.ENDED, self.wrong.encode())
            self.connection.send(Frame.EXIT, CODE.pack(code if code >= 0 else 128 - code))
        except OSError:
            self._end()

    def _hear(self) -> None:
        """Pass the user's input to the program, until the user is gone or a third party interferes."""
        try:
            while True:
                kind, content = self.connection.receive()
                if kind is Frame.SIZE:
                    _resize(self.input, *SIZE.unpack(content))
                elif kind is Frame.NO_MORE_INPUT and self.input not in self.outputs:
                    os.close(self.input)
                elif kind is Frame.INPUT:
                    written(self.input, content)  # the program may close its input and continue
        except OSError as error:
            self.wrong = error.strerror or str(error)
        self._end()
        time.sleep(GONE_S)  # for `run` to end: it may wait for a slow reader
        self.connection.close()

    def _end(self) -> None:
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self.child.poll() is None:
                os.killpg(self.child.pid, number)
            until_s = time.monotonic() + GONE_S
            while self.child.poll() is None and time.monotonic() < until_s:
                time.sleep(LOOK_S)


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read(descriptor: int) -> bytes:
    """The bytes that have arrived; b'' once all writers are gone (for a terminal, EIO)."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


if __name__ == "__main__":
    main()
