"""The program of a shell on the host of a rank: it connects back to its user, on a terminal of its own if asked to.

`orchestrator.shells.program REQUEST`. When the connection ends, so does what it started.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

from orchestrator.errors import SiteError
from orchestrator.shells import request as requests
from orchestrator.shells.connection import CODE, SIZE, Connection, Frame, proved
from orchestrator.shells.request import ShellRequest

CONNECT_S = 5.0
LOOK_S = 0.2
GONE_S = 2.0  # between SIGHUP and SIGKILL
CHUNK_BYTES = 65_536


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
    """The connection to who asked. Raises SiteError where none of the addresses leads there."""
    wrong = []
    for address in asked.addresses:
        try:
            return proved(socket.create_connection((address, asked.port), CONNECT_S), asked.key, called=False)
        except OSError as error:
            wrong.append(f"{address}: {error.strerror or error}")
    raise SiteError(f"the user's machine cannot be reached on port {asked.port} ({'; '.join(wrong)}): {requests.MEND}")


class Joined:
    """A program whose input and outputs travel over a connection."""

    def __init__(self, asked: ShellRequest, connection: Connection) -> None:
        self.connection = connection
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
        """Hand on what it writes until it has ended, and tell its exit code."""
        threading.Thread(target=self._hear, daemon=True).start()
        try:
            while self.outputs:
                ready = select.select([*self.outputs], [], [], LOOK_S)[0]
                for descriptor in ready:
                    if content := _read(descriptor):
                        self.connection.send(self.outputs[descriptor], content)
                    else:
                        del self.outputs[descriptor]
                if not ready and self.child.poll() is not None:  # what it left behind may keep them open
                    break
            code = self.child.wait()
            self.connection.send(Frame.EXIT, CODE.pack(code if code >= 0 else 128 - code))
        except OSError:
            self._end()

    def _hear(self) -> None:
        """Hand on what the user types, until the user is gone."""
        with contextlib.suppress(OSError):
            while True:
                kind, content = self.connection.receive()
                if kind is Frame.SIZE:
                    _resize(self.input, *SIZE.unpack(content))
                elif kind is Frame.NO_MORE_INPUT and self.input not in self.outputs:
                    os.close(self.input)
                elif kind is Frame.INPUT:
                    self._write(content)
        self._end()

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # it may read no more, and go on
            while content:
                content = content[os.write(self.input, content) :]

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
    """What has come; nothing once nobody writes any more, which a terminal says by EIO."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


if __name__ == "__main__":
    main()
