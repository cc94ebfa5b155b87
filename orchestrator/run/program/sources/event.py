"""The scalars in one event of TensorBoard, from protocol buffers' wire format.

Format: https://protobuf.dev/programming-guides/encoding/
Field numbers: tensorboard/compat/proto/{event,summary,tensor,tensor_shape,types}.proto.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}
# DataType: (struct's letter, the field that holds its values unless tensor_content does)
TYPES = {1: ("f", 5), 2: ("d", 6), 3: ("i", 7), 9: ("q", 10), 19: ("e", 13)}

Fields = dict[tuple[int, int], list[Any]]  # (number, wire type) -> values: integers >= 0 of varints, else bytes


@dataclass(frozen=True)
class TensorBoardEvent:
    """One event: seconds since the epoch, step, and its scalars by tag."""

    t: float
    step: int
    scalars: dict[str, float]


def parse(message: bytes) -> TensorBoardEvent:
    """The event in a record. Raises ValueError if it is not an event."""
    event = _fields(message)
    scalars: dict[str, float] = {}
    for summary in event[5, BYTES]:
        for value in map(_fields, _fields(summary)[1, BYTES]):
            tag, scalar = _last(value, 1, BYTES, b"").decode("utf-8", "replace"), _scalar(value)
            if tag and scalar is not None:
                scalars[tag] = scalar
    return TensorBoardEvent(
        _unpacked("d", _last(event, 1, FIXED64, bytes(8))), _signed(_last(event, 2, VARINT, 0)), scalars
    )


def _scalar(value: Fields) -> float | None:
    if simple := _last(value, 2, FIXED32, b""):
        return _unpacked("f", simple)
    return _of_tensor(_fields(_last(value, 8, BYTES, b"")))


def _of_tensor(tensor: Fields) -> float | None:
    """The number in a tensor of one element; None for any other."""
    if (dtype := _last(tensor, 1, VARINT, 0)) not in TYPES:
        return None
    letter, field = TYPES[dtype]
    if content := _last(tensor, 4, BYTES, b""):
        return _unpacked(letter, content) if len(content) == struct.calcsize(letter) else None
    listed = [value for kind in (VARINT, BYTES, FIXED32, FIXED64) for value in tensor[field, kind]]
    return _listed(letter, listed[-1]) if listed else None


def _listed(letter: str, value: int | bytes) -> float | None:
    """The only value of a repeated field, packed or not."""
    if isinstance(value, bytes) and letter in "fd":
        return _unpacked(letter, value) if len(value) == struct.calcsize(letter) else None
    if isinstance(value, bytes):
        value, end = _varint(packed := value, 0)
        if end != len(packed):
            return None
    if letter == "e":  # half precision: its 16 bits as a number
        return _unpacked("e", (value & 0xFFFF).to_bytes(2, "little"))
    return _signed(value)


def _unpacked(letter: str, content: bytes) -> float:
    value = float(struct.unpack(f"<{letter}", content)[0])
    if letter != "f" or not abs(value) < 1e30:
        return value
    # The shortest number with this value in single precision: 0.1, not 0.10000000149011612.
    shorter = (float(f"{value:.{digits}g}") for digits in (6, 7, 8))
    return next((number for number in shorter if struct.pack("<f", number) == content), value)


def _last(found: Fields, number: int, kind: int, default: int | bytes) -> Any:
    return (found.get((number, kind)) or [default])[-1]


def _fields(message: bytes) -> Fields:
    """The fields of a message, without its schema. Raises ValueError if the message is invalid."""
    found: Fields = defaultdict(list)
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            found[key >> 3, kind].append(value)
            continue
        width, at = _varint(message, at) if kind == BYTES else (WIDTHS.get(kind, -1), at)
        if width < 0 or at + width > len(message):
            raise ValueError(f"a field of wire type {kind} does not fit into the message")
        found[key >> 3, kind].append(message[at : at + width])
        at += width
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
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


def _signed(value: int) -> int:
    """A varint as a signed 64-bit number."""
    return value - (1 << 64) if value >> 63 else value
