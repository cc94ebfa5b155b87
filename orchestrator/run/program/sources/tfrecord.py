"""The records of a TFRecord file: length (8 bytes), its checksum (4), content, its checksum (4), all little-endian.

A checksum is a masked CRC-32C. Source: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import struct

HEADER_BYTES, FOOTER_BYTES = 12, 4
LARGEST_BYTES = 64 * 1024  # an event with scalars is far smaller; images and graphs are skipped
POLYNOMIAL = 0x82F63B78


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


TABLE = _table()


def masked_checksum(content: bytes | bytearray) -> int:
    """The checksum of `content` in TFRecord files."""
    crc = 0xFFFF_FFFF
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFF_FFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF


class Records:
    """Cuts bytes into records. A damaged record is left out. After a damaged length nothing more can be read."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._skip_bytes = 0
        self.damaged = False

    def feed(self, block: bytes) -> list[bytes]:
        """The records that end in `block`, without those larger than LARGEST_BYTES."""
        if self.damaged:
            return []
        self._begun += block
        found = []
        while not self.damaged and (content := self._next()) is not None:
            if content:
                found.append(content)
        return found

    def _next(self) -> bytes | None:
        """The next record; b'' if it was left out, None if more bytes are needed."""
        if self._skip_bytes:
            skipped = min(self._skip_bytes, len(self._begun))
            del self._begun[:skipped]
            self._skip_bytes -= skipped
        if self._skip_bytes or len(self._begun) < HEADER_BYTES:
            return None
        length, checksum = struct.unpack_from("<QI", self._begun)
        if masked_checksum(self._begun[:8]) != checksum:
            self.damaged = True
            self._begun.clear()
            return None
        whole_bytes = HEADER_BYTES + length + FOOTER_BYTES
        if length > LARGEST_BYTES:
            self._skip_bytes = whole_bytes
            return b""
        if len(self._begun) < whole_bytes:
            return None
        content = bytes(self._begun[HEADER_BYTES : HEADER_BYTES + length])
        (checksum,) = struct.unpack_from("<I", self._begun, HEADER_BYTES + length)
        del self._begun[:whole_bytes]
        return content if masked_checksum(content) == checksum else b""
