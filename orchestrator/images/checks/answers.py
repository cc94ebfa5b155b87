"""Parsers of the output of programs about MPI, PMI, GPUs and libraries."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.images.checks.compat import HYDRA, version

LIBMPI = re.compile(r"lib(?:mpi|mpich)\.so\.(\d+)")
OPENMPI_SONAMES = range(20, 100)  # Open MPI 2 and 3 are libmpi.so.20, 3 to 5 libmpi.so.40; MPICH's is libmpi.so.12


@dataclass(frozen=True)
class MpiLibrary:
    """An MPI: its family (openmpi, mpich, intel), its version as it prints it, and its PMIx generation."""

    family: str
    version: str
    pmix: int | None = None

    def __str__(self) -> str:
        return f"{self.family} {self.version}".strip()


@dataclass(frozen=True)
class Library:
    """A program or library as `ldd` shows it, with its missing libraries and missing versions of glibc."""

    path: str
    missing: tuple[str, ...] = ()
    glibc: tuple[str, ...] = ()  # as in 2.34
    mpi: str | None = None  # the MPI library that it is linked with, as in libmpi.so.40
    error: str = ""  # why ldd failed


def parse_mpi(said: str) -> MpiLibrary | None:
    """The MPI from `ompi_info --parsable`, `mpichversion`, or from `mpirun --version` of any family."""
    if match := re.search(r"^ompi:version:full:(\S+)", said, re.MULTILINE):
        embedded = re.search(r"^mca:pmix:pmix(\d)", said, re.MULTILINE)
        return MpiLibrary("openmpi", match[1], int(embedded[1]) if embedded else None)
    for family, pattern in (
        ("openmpi", r"\(Open(?: MPI|RTE)\) (\S+)"),
        ("intel", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"(?:HYDRA build details|MPICH)[\s\S]*?Version:\s+(\S+)"),
    ):
        if match := re.search(pattern, said):
            return MpiLibrary(family, match[1])
    return None


def same_abi(one: str, other: str) -> bool:
    """Whether programs of one family load the libraries of the other."""
    return one == other or {one, other} <= HYDRA


def family_of(library: str) -> str | None:
    """openmpi or mpich (Intel MPI has the same ABI) by the name of a library, as in libmpi.so.40; None for another."""
    match = LIBMPI.search(library)
    if not match:
        return None
    return "openmpi" if int(match[1]) in OPENMPI_SONAMES else "mpich"


def parse_pmix(said: str | None) -> int | None:
    """The generation in the version text of libpmix, as in 'OpenPMIx 4.2.2 (...)'."""
    match = re.search(r"(\d+)\.\d+", said or "")
    return int(match[1]) if match else None


def parse_slurm_pmi(said: str) -> frozenset[str] | None:
    """The names that `srun --mpi=list` prints, as in none, pmi2, pmix, pmix_v4; None if it lists nothing."""
    listed = re.split(r"MPI (?:plugin )?types are\.*", said)
    if len(listed) == 1 and not re.search(r"^srun: (?:none|pmi2|pmix\w*|cray_shasta)$", said, re.MULTILINE):
        return None
    return frozenset(re.findall(r"\b(none|pmi2|pmix_v\d+|pmix|cray_shasta|openmpi)\b", listed[-1]))


def parse_slurm_pmix(said: str) -> frozenset[int]:
    """The PMIx generations that `srun --mpi=list` offers."""
    return frozenset(int(n) for n in re.findall(r"pmix_v(\d+)", said))


def parse_gpus(said: str) -> tuple[str | None, tuple[str, ...]]:
    """(driver, architectures) from `nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader`."""
    rows = re.findall(r"^\s*(\d+(?:\.\d+)+)\s*,\s*(\d+)\.(\d)\s*$", said, re.MULTILINE)
    return (rows[0][0] if rows else None), tuple(sorted({f"sm_{major}{minor}" for _, major, minor in rows}))


def parse_compat(said: str) -> str:
    """The newest driver among files of cuda-compat, as in compat/libcuda.so.560.35.03; '' if there is none."""
    return max(re.findall(r"/compat/\S*libcuda\.so\.(\d+(?:\.\d+)+)", said), key=version, default="")


def parse_glibc(said: str) -> str | None:
    """The version from the line of the product in `ldd --version`; None for another C library."""
    match = re.search(r"^ldd \(.*(?:GLIBC|GNU libc).*?(\d+\.\d+)[ \t]*$", said, re.IGNORECASE | re.MULTILINE)
    return match[1] if match else None


def parse_ldd(path: str, said: str, exit_code: int) -> Library:
    """The library from the output of `ldd PATH`: glibc's has `NAME => not found`, `version `GLIBC_2.34' not found`."""
    missing = dict.fromkeys(re.findall(r"^\s*(\S+) => not found", said, re.MULTILINE))
    glibc = dict.fromkeys(re.findall(r"version `GLIBC_([\d.]+)' not found", said))
    mpi = LIBMPI.search(said)
    is_static = re.search(r"not a dynamic executable|statically linked", said) is not None
    failed = exit_code != 0 and not missing and not glibc and not is_static
    last = (said.strip().splitlines() or [f"ldd ended with exit code {exit_code}"])[-1]
    return Library(path, tuple(missing), tuple(glibc), mpi[0] if mpi else None, last if failed else "")


def parse_probe(said: str) -> dict[str, Any]:
    """The facts that the probe printed, whatever text is around them; {} if it printed nothing."""
    match = re.search(r"^TORUSRUN-PROBE (\{.*\})$", said, re.MULTILINE)
    try:
        found = ast.literal_eval(match[1]) if match else {}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    kinds = {"training": bool, "architectures": list}
    known = found.items() if type(found) is dict else ()
    return {name: value for name, value in known if value is None or type(value) is kinds.get(name, str)}


def parse_questions(said: str) -> dict[str, tuple[str, int]]:
    """(answer, exit code) of each question by its name, from the output of the script of questions.py."""
    found = re.findall(r"^TORUSRUN-ASKED (.*)\n([\s\S]*?)\nTORUSRUN-ANSWERED (\d+)$", said, re.MULTILINE)
    return {name: (answer.rstrip("\n"), int(code)) for name, answer, code in found}
