"""The scalars in one event of TensorBoard.

Field numbers: tensorboard/compat/proto/{event,summary,tensor,tensor_shape,types}.proto.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orchestrator.runs.program.sources.protobuf import BYTES, FIXED32, FIXED64, VARINT, fields, signed, varint

# DataType: (struct's letter, the field that holds its values unless tensor_content does)
TYPES = {1: ("f", 5), 2: ("d", 6), 3: ("i", 7), 9: ("q", 10), 19: ("e", 13)}


@dataclass(frozen=True)
class TensorBoardEvent:
    """One event: seconds since the epoch, step, and its scalars by tag."""

    t: float
    step: int
    scalars: dict[str, float]


def parse(message: bytes) -> TensorBoardEvent:
    """The event in a record. Raises ValueError if it is not an event."""
    t, step = 0.0, 0
    scalars: dict[str, float] = {}
    for number, kind, value in fields(message):
        if number == 1 and kind == FIXED64 and isinstance(value, bytes):
            t = _unpacked("d", value)
        elif number == 2 and kind == VARINT and isinstance(value, int):
            step = signed(value)
        elif number == 5 and kind == BYTES and isinstance(value, bytes):
            scalars.update(_scalars(value))
    return TensorBoardEvent(t, step, scalars)


def _scalars(summary: bytes) -> dict[str, float]:
    found = {}
    for number, kind, value in fields(summary):
        if number == 1 and kind == BYTES and isinstance(value, bytes):
            tag, scalar = _value(value)
            if tag and scalar is not None:
                found[tag] = scalar
    return found


def _value(message: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, kind, value in fields(message):
        if number == 1 and kind == BYTES and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif number == 2 and kind == FIXED32 and isinstance(value, bytes):
            scalar = _unpacked("f", value)
        elif number == 8 and kind == BYTES and isinstance(value, bytes):
            scalar = _tensor(value)
    return tag, scalar


def _tensor(message: bytes) -> float | None:
    """The number in a tensor of one element; None for any other."""
    dtype, content, listed = 0, b"", {}
    for number, kind, value in fields(message):
        if number == 1 and kind == VARINT and isinstance(value, int):
            dtype = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        else:
            listed[number] = (kind, value)
    if dtype not in TYPES:
        return None
    letter, field = TYPES[dtype]
    if content:
        return _unpacked(letter, content) if len(content) == struct.calcsize(letter) else None
    return _listed(letter, *listed[field]) if field in listed else None


def _listed(letter: str, kind: int, value: int | bytes) -> float | None:
    """The only value of a repeated field, packed or not."""
    if isinstance(value, bytes) and letter in "fd":
        return _unpacked(letter, value) if len(value) == struct.calcsize(letter) else None
    if isinstance(value, bytes):
        number, end = varint(value, 0)
        value = number if end == len(value) else b""
    if not isinstance(value, int):
        return None
    if letter == "e":  # half precision: its 16 bits as a number
        return _unpacked("e", (value & 0xFFFF).to_bytes(2, "little"))
    return signed(value)


def _unpacked(letter: str, content: bytes) -> float:
    value = float(struct.unpack(f"<{letter}", content)[0])
    if letter != "f" or not abs(value) < 1e30:
        return value
    # The shortest number with this value in single precision: 0.1, not 0.10000000149011612.
    shorter = (float(f"{value:.{digits}g}") for digits in (6, 7, 8))
    return next((number for number in shorter if struct.pack("<f", number) == content), value)
