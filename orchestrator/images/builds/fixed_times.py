"""Gives a SIF fixed times and a fixed identity, so that two builds of one lock give the same file, bit for bit.

SOURCE_DATE_EPOCH sets the times of the files in the image. Runtimes write the current time and a random identity into
the SIF around it, whatever that variable says (seen with Apptainer 1.4.5).

The places are those of sylabs/sif v2, pkg/sif/sif.go (from memory; verified in files that Apptainer 1.4.5 wrote):
numbers of 8 bytes, the lowest byte first.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from torusrun.orchestrator.base import private
from torusrun.orchestrator.images.architecture import SIF_MAGIC

HEADER_BYTES = 128
MAGIC_AT, VERSION_AT, IDENTITY_AT, DESCRIPTORS_AT = 32, 42, 48, 88
VERSION = b"01\0"
IDENTITY_BYTES = 16  # then the times of creation and of the last change
DESCRIPTOR_BYTES, TIMES_AT = 585, 41  # of each part of the file: its times of creation and of the last change
MOST_PARTS = 1024


def fix(image: Path, time_s: int) -> None:
    """Set all times of the SIF to `time_s` (seconds since the epoch), and its identity to zeros.

    A file of another format or version stays as it is. Raises OSError if the file cannot be written.
    """
    with open(private.open_regular(image, os.O_RDWR), "r+b") as file:
        head = file.read(HEADER_BYTES)
        magic, version = head[MAGIC_AT:VERSION_AT], head[VERSION_AT : VERSION_AT + len(VERSION)]
        if len(head) < HEADER_BYTES or (magic, version) != (SIF_MAGIC, VERSION):
            return
        times = struct.pack("<qq", time_s, time_s)
        _write(file, IDENTITY_AT, bytes(IDENTITY_BYTES) + times)
        parts, first = struct.unpack_from("<qq", head, DESCRIPTORS_AT)
        for number in range(min(parts, MOST_PARTS)):
            at = first + number * DESCRIPTOR_BYTES
            file.seek(at)
            if any(file.read(DESCRIPTOR_BYTES)):  # else there is no such part
                _write(file, at + TIMES_AT, times)


def _write(file: BinaryIO, at: int, content: bytes) -> None:
    file.seek(at)
    file.write(content)
