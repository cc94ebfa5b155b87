"""The fields of a message in protocol buffers' wire format, without its schema.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}


def fields(message: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire type, value) of each field. The value of a varint is an int >= 0, of all others bytes.

    Raises ValueError if the message is invalid.
    """
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, kind, value
            continue
        width = WIDTHS.get(kind, -1)
        if kind == BYTES:
            width, at = varint(message, at)
        if width < 0 or at + width > len(message):
            raise ValueError(f"a field of wire type {kind} does not fit into the message")
        yield number, kind, message[at : at + width]
        at += width


def varint(message: bytes, at: int) -> tuple[int, int]:
    """(the number at `at`, the offset after it). Raises ValueError if there is none."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("the message ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise ValueError("a number has more than ten bytes")


def signed(value: int) -> int:
    """A varint as a signed 64-bit number."""
    return value - (1 << 64) if value >> 63 else value
