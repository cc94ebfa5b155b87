"""SIF files: what a file of an image is, where the squashfs in it lies, and fixed times in it.

The format: sylabs/sif v2, pkg/sif/sif.go (verified with SIFs of Apptainer 1.4.5). All numbers are little-endian.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError

SIF_MAGIC = b"SIF_MAGIC\0"
SQUASHFS_MAGIC = b"hsqs"  # linux/fs/squashfs/squashfs_fs.h
# The header of a SIF: a line that starts it (32 bytes), the magic (10), a version (3), and this code (3).
# Verified: sylabs/sif, pkg/sif/arch.go and sif.go.
SIF_CODE_AT = 45
SIF_CODES = {
    "01": "i686", "02": "x86_64", "03": "armv7l", "04": "aarch64", "05": "ppc64", "06": "ppc64le", "11": "s390x",
    "12": "riscv64",
}  # fmt: skip
# Source: elf.h
ELF_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
DOCKER_NAMES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7", "i686": "386"}
HEAD_BYTES = 64
HEADER = struct.Struct("<32s10s3s3s16s8q")  # of its eight numbers, the fourth and fifth: count and place of descriptors
DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128sii")  # then the rest of 384 bytes that depend on its type
DESCRIPTOR_BYTES = 585
MOST_DESCRIPTORS = 1024
PARTITION, SQUASHFS, ENCRYPTED, PRIMARY = 0x4004, 1, 5, 2
IDENTITY_AT, IDENTITY_BYTES = 48, 16  # then the times of creation and of the last change
VERSION = b"01\0"
TIMES_AT = 41  # in a descriptor: its times of creation and of the last change


def is_sif(path: Path) -> bool:
    """Whether a file is a SIF, by its header; False if it cannot be read."""
    return _head(path)[32:42] == SIF_MAGIC


def is_squashfs(path: Path) -> bool:
    """Whether a file is a file system of squashfs, by its header; False if it cannot be read."""
    return _head(path)[:4] == SQUASHFS_MAGIC


def machine(path: Path) -> tuple[str | None, str]:
    """(the processor as `uname -m` names it, or None if the file names none; the evidence)."""
    head = _head(path)
    if head[32:42] != SIF_MAGIC:
        return None, f"{path} does not have the header of a SIF"
    code = head[SIF_CODE_AT : SIF_CODE_AT + 2].decode("ascii", "replace")
    processor = SIF_CODES.get(code)
    return processor, f"the header of {path} names the architecture {code} ({processor or 'unknown'})"


def own_platform() -> str:
    """This machine as Docker names it, as in linux/amd64."""
    processor = os.uname().machine
    return f"linux/{DOCKER_NAMES.get(processor, processor)}"


def of_program(path: Path) -> str | None:
    """The processor of a program, or None if the file cannot be read or is not an ELF file."""
    head = _head(path)
    if head[:4] != b"\x7fELF":
        return None
    return ELF_MACHINES.get(int.from_bytes(head[18:20], "big" if head[5] == 2 else "little"))


def _head(path: Path) -> bytes:
    try:
        with open(private.open_regular(Path(os.path.realpath(path))), "rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b""


def squashfs(path: Path) -> tuple[int, int]:
    """(first byte, number of bytes) of a SIF's root file system. Raises UserError unless it is a squashfs to copy."""
    try:
        with open(private.open_regular(Path(os.path.realpath(path))), "rb") as stream:
            size, head = os.fstat(stream.fileno()).st_size, stream.read(HEADER.size)
            if len(head) < HEADER.size or head[32:42] != SIF_MAGIC:
                raise UserError(f"{path}: this is not a SIF")
            if not 0 <= HEADER.unpack(head)[9] <= size:
                raise UserError(f"{path}: the SIF is damaged: it has no table of its parts; copy or build it again")
            table = _descriptors(stream, head)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the SIF cannot be read: {error}") from None
    for _, content in table:
        part = DESCRIPTOR.unpack_from(content)
        kind, is_used, offset, length, form, role = part[0], part[1], part[5], part[6], part[13], part[14]
        if is_used and kind == PARTITION and role == PRIMARY:
            if form == ENCRYPTED:
                raise UserError(f"{path}: its file system is encrypted, so it cannot be converted")
            if form == SQUASHFS:
                if offset < 0 or length <= 0 or offset + length > size:
                    raise UserError(
                        f"{path}: the SIF is damaged: its squashfs is not within the file; copy or build it again"
                    )
                return offset, length
    raise UserError(f"{path}: the SIF has no squashfs, so it cannot be converted for Pyxis")


def fix_times(image: Path, time_s: int) -> None:
    """Set all times of the SIF to `time_s` (seconds since the epoch), and its identity to zeros.

    A file of another format or version stays as it is. Raises OSError if the file cannot be written.
    """
    with open(private.open_regular(image, os.O_RDWR), "r+b") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size or head[32:45] != SIF_MAGIC + VERSION:
            return
        times = struct.pack("<qq", time_s, time_s)
        places = [
            place for place, content in _descriptors(file, head) if any(content)
        ]  # zeros are an unused descriptor
        for at, content in [(IDENTITY_AT, bytes(IDENTITY_BYTES) + times), *((at + TIMES_AT, times) for at in places)]:
            file.seek(at)
            file.write(content)


def _descriptors(stream: BinaryIO, head: bytes) -> list[tuple[int, bytes]]:
    """(place, content) of the descriptors of a SIF's parts."""
    count, first = HEADER.unpack(head)[8:10]
    stream.seek(first)
    table = stream.read(DESCRIPTOR_BYTES * min(max(count, 0), MOST_DESCRIPTORS))
    starts = range(0, len(table) - DESCRIPTOR_BYTES + 1, DESCRIPTOR_BYTES)
    return [(first + start, table[start : start + DESCRIPTOR_BYTES]) for start in starts]
