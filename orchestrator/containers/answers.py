"""What programs answer when they are asked about MPI, PMIx, GPUs and libraries, read from their text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MpiLibrary:
    """An MPI: its family (openmpi, mpich, intel) and version as it says them, and the PMIx generation it speaks."""

    family: str
    version: str
    pmix: int | None = None


def parse_mpi(said: str) -> MpiLibrary | None:
    """The MPI from `ompi_info --parsable`, or from `mpirun --version` of any family."""
    if match := re.search(r"^ompi:version:full:(\S+)", said, re.MULTILINE):
        embedded = re.search(r"^mca:pmix:pmix(\d)", said, re.MULTILINE)
        return MpiLibrary("openmpi", match[1], int(embedded[1]) if embedded else None)
    for family, pattern in (
        ("openmpi", r"\(Open MPI\) (\S+)"),
        ("intel", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"(?:HYDRA build details|MPICH)[\s\S]*?Version:\s+(\S+)"),
    ):
        if match := re.search(pattern, said):
            return MpiLibrary(family, match[1])
    return None


def parse_pmix(said: str | None) -> int | None:
    """The generation from what libpmix says it is, as in 'OpenPMIx 4.2.2 (...)'."""
    match = re.search(r"(\d+)\.\d+", said or "")
    return int(match[1]) if match else None


def parse_slurm_pmix(said: str) -> frozenset[int]:
    """The PMIx generations that `srun --mpi=list` offers."""
    return frozenset(int(n) for n in re.findall(r"pmix_v(\d+)", said))


def parse_gpus(said: str) -> tuple[str | None, tuple[str, ...]]:
    """(driver, architectures) from `nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader`."""
    rows = re.findall(r"^\s*(\d+(?:\.\d+)+)\s*,\s*(\d+)\.(\d)\s*$", said, re.MULTILINE)
    return (rows[0][0] if rows else None), tuple(sorted({f"sm_{major}{minor}" for _, major, minor in rows}))


def parse_glibc(said: str) -> str | None:
    """The version from the first line of `ldd --version`; None for another C library."""
    first = said.splitlines()[0] if said else ""
    match = re.search(r"(\d+\.\d+)\s*$", first) if re.search("GLIBC|GNU libc", first, re.IGNORECASE) else None
    return match[1] if match else None


def parse_probe(said: str) -> dict[str, Any]:
    """What the probe printed, whatever stands around it; {} when it printed nothing."""
    match = re.search(r"^TORUSRUN-PROBE (\{.*\})$", said, re.MULTILINE)
    return dict(json.loads(match[1])) if match else {}
