"""The format and the processor of an image, read from the head of its file."""

from __future__ import annotations

import os
from pathlib import Path

from torusrun.orchestrator.base import private

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


def is_sif(path: Path) -> bool:
    """Whether a file is a SIF, by its header; False if it cannot be read."""
    return _head(path)[32:42] == SIF_MAGIC


def is_squashfs(path: Path) -> bool:
    """Whether a file is a file system of squashfs, by its header; False if it cannot be read."""
    return _head(path)[:4] == SQUASHFS_MAGIC


def machine(path: Path) -> tuple[str | None, str]:
    """(the processor as `uname -m` names it, or None if the file does not name one; the evidence)."""
    head = _head(path)
    if head[32:42] != SIF_MAGIC:
        return None, f"{path} does not have the header of a SIF"
    code = head[SIF_CODE_AT : SIF_CODE_AT + 2].decode("ascii", "replace")
    found = SIF_CODES.get(code)
    return found, f"the header of {path} names the architecture {code} ({found or 'unknown'})"


def own_platform() -> str:
    """This machine as Docker names it, as in linux/amd64."""
    machine = os.uname().machine
    return f"linux/{DOCKER_NAMES.get(machine, machine)}"


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
