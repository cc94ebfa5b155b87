"""Messages between here and the login node: a line of JSON, then as many bytes as it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_HEADER = 16_000_000  # bytes
LARGEST_PAYLOAD = 1 << 24
Frame = tuple[dict[str, Any], bytes]


def packed(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    return json.dumps({**header, "bytes": len(payload)}).encode() + b"\n" + payload


class Unpacker:
    """Frames out of the pieces in which `receive` hands on what arrives."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive, self._buffer = receive, bytearray()

    def skip_to(self, mark: bytes, most: int) -> None:
        """Forget all up to and with `mark`. Raises ValueError when it is not among the first `most` bytes."""
        while (found := self._buffer.find(mark)) < 0:
            if len(self._buffer) > most:
                raise ValueError(bytes(self._buffer[:most]).decode(errors="replace"))
            self._buffer += self._receive()
        del self._buffer[: found + len(mark)]

    def frame(self) -> Frame:
        """The next frame. Raises ValueError for what is none."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LONGEST_HEADER:
                raise ValueError("a message has no end")
            self._buffer += self._receive()
        header = json.loads(bytes(self._take(end + 1)))
        size = header["bytes"]
        if not isinstance(size, int) or not 0 <= size <= LARGEST_PAYLOAD:
            raise ValueError(f"a message of {size} bytes")
        while len(self._buffer) < size:
            self._buffer += self._receive()
        return header, bytes(self._take(size))

    def _take(self, size: int) -> bytearray:
        taken = self._buffer[:size]
        del self._buffer[:size]
        return taken
