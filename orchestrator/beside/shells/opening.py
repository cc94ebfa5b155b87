"""The user's side of a shell: it listens, requests the program from the job, and joins it to streams of ours."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.base.terminal.output import raw
from torusrun.orchestrator.beside.shells.addresses import addresses, network
from torusrun.orchestrator.job import shell_requests as requests
from torusrun.orchestrator.job.connection import (
    CALLED,
    CHUNK_BYTES,
    CODE,
    LOOK_S,
    MOST_LINKS,
    SIZE,
    Broken,
    Connection,
    Frame,
    Proofs,
    written,
)
from torusrun.orchestrator.job.shell_requests import ShellRequest

ENDS_S = 5.0  # for the thread that reads the input: it waits for nothing else
WAIT_S = 60.0  # for the job to see the request, its remote shell, and the delays of a shared file system


def open_shell(folder: Path, host: str, argv: Sequence[str], *, terminal: bool, streams: Streams = STANDARD) -> int:
    """Run `argv` on `host` of the job that reads requests in `folder`, joined to `streams` of ours; its exit code.

    Raises SiteError if the job does not start it, or if the connection breaks.
    """
    size = shutil.get_terminal_size()
    columns, rows = (size.columns or 80, size.lines or 24) if terminal else (0, 0)  # Python 3.10 says 0 for unknown
    with socket.create_server(("", 0), backlog=MOST_LINKS) as listener:
        port, secret = listener.getsockname()[1], secrets.token_hex(32)
        asked = ShellRequest(host, tuple(argv), addresses(), network(), port, secret, rows, columns)
        with requests.left(asked, folder) as path:
            connection = _connected(listener, asked, path)
    with raw(terminal) as resized:
        return _joined(connection, host, resized, streams)


def _connected(listener: socket.socket, asked: ShellRequest, path: Path) -> Connection:
    """The connection from the requested program."""
    until_s = time.monotonic() + WAIT_S
    with Proofs(asked.key, CALLED) as proofs:
        proofs.listen(listener)
        while time.monotonic() < until_s:
            if why := requests.failure(path):
                raise SiteError(f"no shell on {asked.host}: {why}")
            if connection := proofs.step(LOOK_S):
                return connection
    where = f"{' or '.join(asked.addresses) or 'this machine'}, port {asked.port}"
    room = "or other shells leave no room there: Grid Engine has one for each slot"
    raise SiteError(f"nothing on {asked.host} connected to {where} within {WAIT_S:g} s: {requests.MEND}; {room}")


def _joined(connection: Connection, host: str, resized: list[int], streams: Streams) -> int:
    """Copy input and output in both directions until the program has ended; its exit code."""
    over, ends = os.pipe()
    typing = threading.Thread(target=_hand_on_input, args=(connection, resized, streams.input, over), daemon=True)
    typing.start()
    to = {Frame.OUTPUT: streams.output, Frame.ERRORS: sys.stderr.fileno()}
    try:
        while True:
            kind, content = connection.receive()
            if kind is Frame.EXIT:
                return int(CODE.unpack(content)[0])
            if kind is Frame.ENDED:
                raise Broken(content.decode())
            if kind in to and not written(to[kind], content):
                return 128 + signal.SIGPIPE
    except OSError as error:
        raise SiteError(f"the shell on {host} has ended: {error}") from None
    finally:
        connection.close()
        os.close(ends)
        typing.join(ENDS_S)  # else it could read from what is opened next, with the number of a stream that was closed
        os.close(over)


def _hand_on_input(connection: Connection, resized: list[int], source: int, over: int) -> None:
    """Send the user's input, and the new sizes of the window, until `over` can be read."""
    with contextlib.suppress(OSError):
        while over not in (ready := select.select([source, over], [], [], LOOK_S)[0]):
            typed = source in ready
            if resized:
                resized.clear()
                size = os.get_terminal_size()
                connection.send(Frame.SIZE, SIZE.pack(size.lines, size.columns))
            if typed and not (keys := os.read(source, CHUNK_BYTES)):
                break
            if typed:
                connection.send(Frame.INPUT, keys)
        connection.send(Frame.NO_MORE_INPUT)
