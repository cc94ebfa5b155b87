"""One connection of a forward, over the streams of a shell's way: both ends, and the program on the rank's host.

`orchestrator.beside.leading PORT` connects to the port on its own host alone. It begins with a mark, since a shell's
start files may print something before. Each piece of bytes has its size before it and a line break after it: srun
passes on what ends with a line break at once, and keeps other bytes until one follows. A piece of no bytes means that
no more come.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import struct
import sys

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.listening import BLOCK_BYTES, HERE, LOOK_S, aborted, joined
from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.base.terminal.plain import plain

BEGIN = b"torusrun forward begins\n"
NOISE_BYTES = 1 << 16
SIZE = struct.Struct("!I")
END = b"\n"
OPEN = b"open"  # the first piece of the program, if it could connect; else the piece says why not
OPEN_S = 20.0


class Pieces:
    """Two descriptors, which it closes, with the functions of a socket."""

    def __init__(self, streams: Streams) -> None:
        self._input, self._output = io.FileIO(streams.input, "r"), io.FileIO(streams.output, "w")
        os.set_blocking(streams.output, False)
        self._arrived = bytearray()

    def recv(self, most: int) -> bytes:
        """The next piece; b'' at the end of all pieces. Raises OSError if the stream breaks off or has no piece."""
        self._arrive(SIZE.size)
        (size,) = SIZE.unpack_from(self._arrived)
        if size > most:
            raise OSError(f"a piece of {size} bytes")
        whole = SIZE.size + size + len(END)
        self._arrive(whole)
        piece, end = bytes(self._arrived[SIZE.size : whole - len(END)]), self._arrived[whole - len(END) : whole]
        if end != END:
            raise OSError("a piece without its end")
        del self._arrived[:whole]
        return piece

    def _arrive(self, size: int) -> None:
        while len(self._arrived) < size:
            if not (data := self._input.read(BLOCK_BYTES)):
                raise ConnectionResetError
            self._arrived += data

    def sendall(self, data: bytes) -> None:
        self._send(SIZE.pack(len(data)) + data + END)

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                select.select([], [self._output], [], LOOK_S)
                left = left[self._output.write(left) or 0 :]
            except ValueError:  # closed by another thread
                raise BrokenPipeError from None

    def shutdown(self, how: int) -> None:
        """Announce the last piece; for both directions, end the other end's input."""
        if how == socket.SHUT_WR:
            self.sendall(b"")
        else:
            self._output.close()

    def close(self) -> None:
        self._output.close()
        self._input.close()

    def begin(self) -> None:
        self._send(BEGIN)

    def begun(self) -> None:
        """Drop the bytes before the pieces. Raises SiteError if no piece begins."""
        while BEGIN not in self._arrived:
            if len(self._arrived) > NOISE_BYTES:
                raise SiteError(f"the other end printed {bytes(self._arrived[:80])!r} and did not start the forward")
            try:
                self._arrive(len(self._arrived) + 1)
            except ConnectionResetError:
                raise SiteError("the host of the rank could not be reached") from None
        del self._arrived[: self._arrived.index(BEGIN) + len(BEGIN)]


def lead(link: socket.socket, pieces: Pieces) -> None:
    """Join a connection to the program on the rank's host. Raises SiteError if its port could not be opened."""
    pieces.begun()
    if (first := pieces.recv(BLOCK_BYTES)) != OPEN:
        raise SiteError(plain(first.decode(errors="replace")))
    joined(link, pieces)


def connection(port: int) -> socket.socket:
    """A connection to a port of this host, on whichever address. Raises OSError."""
    for address in (HERE, "::1"):
        with contextlib.suppress(OSError):
            return _opened(address, port)
    from torusrun.orchestrator.beside.shells.addresses import addresses

    for address in addresses():
        with contextlib.suppress(OSError):
            return _opened(address, port)
    raise ConnectionRefusedError


def _opened(address: str, port: int) -> socket.socket:
    link = socket.create_connection((address, port), timeout=OPEN_S)
    if link.getpeername() == link.getsockname():  # without a listener, the kernel may connect it to itself
        link.close()
        raise ConnectionRefusedError
    link.settimeout(None)
    return link


def main() -> None:
    user, port = Pieces(STANDARD), int(sys.argv[1])
    user.begin()
    try:
        link = connection(port)
    except OSError:
        return user.sendall(f"nothing answers on port {port} of {socket.gethostname()}".encode())
    with contextlib.suppress(OSError), link:
        try:
            user.sendall(OPEN)
            joined(link, user)
        except OSError:
            aborted(link)
    os._exit(0)  # a thread may still wait for the user's side


if __name__ == "__main__":
    main()
