"""The root file system in a SIF: where its squashfs begins and ends.

The format: sylabs/sif, pkg/sif/sif.go (verified with SIFs of Apptainer 1.4.5). All numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.architecture import SIF_MAGIC

HEADER = struct.Struct("<32s10s3s3s16s8q")  # of its eight numbers, the fourth and fifth: count and place of descriptors
DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128sii")  # then the rest of 384 bytes that depend on its type
DESCRIPTOR_BYTES = 585
MOST_DESCRIPTORS = 1024
PARTITION, SQUASHFS, ENCRYPTED, PRIMARY = 0x4004, 1, 5, 2


class Extent(NamedTuple):
    """A part of a file: its first byte, and its number of bytes."""

    start: int
    length: int


def squashfs(path: Path) -> Extent:
    """The squashfs of the root file system in a SIF. Raises UserError if it has none that can be copied."""
    try:
        with open(private.open_regular(Path(os.path.realpath(path))), "rb") as stream:
            size, head = os.fstat(stream.fileno()).st_size, stream.read(HEADER.size)
            if len(head) < HEADER.size or head[32:42] != SIF_MAGIC:
                raise UserError(f"{path}: this is not a SIF")
            count, place = HEADER.unpack(head)[8:10]
            if not 0 <= place <= size:
                raise UserError(f"{path}: the SIF is damaged: it has no table of its parts; copy or build it again")
            stream.seek(place)
            table = stream.read(DESCRIPTOR_BYTES * min(max(count, 0), MOST_DESCRIPTORS))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the SIF cannot be read: {error}") from None
    for start in range(0, len(table) - DESCRIPTOR_BYTES + 1, DESCRIPTOR_BYTES):
        found = DESCRIPTOR.unpack_from(table, start)
        kind, is_used, offset, length, form, role = found[0], found[1], found[5], found[6], found[13], found[14]
        if is_used and kind == PARTITION and role == PRIMARY:
            if form == ENCRYPTED:
                raise UserError(f"{path}: its file system is encrypted, so it cannot be converted")
            if form == SQUASHFS:
                if offset < 0 or length <= 0 or offset + length > size:
                    raise UserError(
                        f"{path}: the SIF is damaged: its squashfs is not within the file; copy or build it again"
                    )
                return Extent(offset, length)
    raise UserError(f"{path}: the SIF has no squashfs, so it cannot be converted for Pyxis")
