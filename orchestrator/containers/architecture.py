"""The processor that an image is made for, read from its file, without starting it."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator import private

SIF_MAGIC = b"SIF_MAGIC\0"
# The header of a SIF: a line to start it by (32 bytes), the magic (10), a version (3), and this code (3).
# Verified: sylabs/sif, pkg/sif/arch.go and sif.go.
SIF_CODE_AT = 45
SIF_CODES = {
    "01": "i686", "02": "x86_64", "03": "armv7l", "04": "aarch64", "05": "ppc64", "06": "ppc64le", "11": "s390x",
    "12": "riscv64",
}  # fmt: skip
ELF_MACHINES = {
    3: "i686",
    21: "ppc64le",
    22: "s390x",
    40: "armv7l",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
}  # elf.h
HEAD_BYTES = 64
PROGRAMS = (
    "bin/sh",
    "usr/bin/sh",
    "bin/bash",
    "usr/bin/python3",
    "lib/ld-linux-aarch64.so.1",
    "lib64/ld-linux-x86-64.so.2",
)
LINKS = 16


def machine(path: Path) -> tuple[str | None, str]:
    """(the processor as `uname -m` names it, what was read); None where the file does not say it."""
    if path.is_dir():
        return _of_folder(path)
    head = _head(path)
    if head[32:42] != SIF_MAGIC:
        return None, f"the header of {path} is no SIF's"
    code = head[SIF_CODE_AT : SIF_CODE_AT + 2].decode("ascii", "replace")
    found = SIF_CODES.get(code)
    return found, f"the header of {path} names the architecture {code} ({found or 'unknown'})"


def of_program(path: Path) -> str | None:
    """The processor that a program is for; None where it cannot be read, or is no ELF file."""
    head = _head(path)
    if head[:4] != b"\x7fELF":
        return None
    return ELF_MACHINES.get(int.from_bytes(head[18:20], "big" if head[5] == 2 else "little"))


def _of_folder(root: Path) -> tuple[str | None, str]:
    for name in PROGRAMS:
        file = _inside(root, name)
        if file and (found := of_program(file)):
            return found, f"the ELF header of {file} names {found}"
    return None, f"no program was found in {root}"


def _inside(root: Path, name: str) -> Path | None:
    """The file that a program in the image would open: links lead from its root, never to the host's files."""
    waiting, path, followed = name.split("/")[::-1], root, 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            path = path if path == root else path.parent
        elif part not in ("", "."):
            path = path / part
        if path.is_symlink():
            target, path = os.readlink(path), path.parent
            path = root if target.startswith("/") else path
            waiting += target.split("/")[::-1]
            followed += 1
            if followed > LINKS:
                return None
    return path if path.is_file() else None


def _head(path: Path) -> bytes:
    try:
        with open(private.open_regular(Path(os.path.realpath(path))), "rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError:
        return b""
