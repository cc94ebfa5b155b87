"""Messages between here and the login node: a line of JSON, then as many bytes as it announces."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torusrun.orchestrator.base.json_files import parsed

LONGEST_HEADER = 16_000_000  # bytes
LARGEST_PAYLOAD = 1 << 24
PIECE_BYTES = 1 << 20  # of a file, or of a call's output, in one answer
LONGEST_SHOWN = 80  # characters of an unexpected message
Frame = tuple[dict[str, Any], bytes]


def packed(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    return json.dumps({**header, "bytes": len(payload)}).encode() + b"\n" + payload


class Unpacker:
    """Joins the pieces from `receive` and splits them into frames."""

    def __init__(self, receive: Callable[[], bytes]) -> None:
        self._receive, self._buffer = receive, bytearray()

    def frame(self, longest_header: int = LONGEST_HEADER, largest_payload: int = LARGEST_PAYLOAD) -> Frame:
        """The next frame. Raises ValueError with an explanation if it is not a frame, or is larger than allowed."""
        header = parsed(self.until(b"\n", longest_header))
        size = header.get("bytes") if isinstance(header, dict) else None
        if type(size) is not int or not 0 <= size <= largest_payload:
            raise ValueError(f"a message of {str(size)[:20]} bytes")
        while len(self._buffer) < size:
            self._buffer += self._receive()
        return header, self._take(size)

    def until(self, mark: bytes, most: int) -> bytes:
        """The bytes before `mark`, which is dropped. Raises ValueError unless it is among the first `most` bytes."""
        while (found := self._buffer.find(mark, 0, most)) < 0:
            if len(self._buffer) >= most:
                raise ValueError(bytes(self._buffer[:LONGEST_SHOWN]).decode(errors="replace"))
            self._buffer += self._receive()
        before = self._take(found)
        del self._buffer[: len(mark)]
        return before

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
