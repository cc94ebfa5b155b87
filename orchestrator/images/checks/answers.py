"""Parsers of what programs print about MPI, PMI, GPUs and libraries, and the tables of compatible versions.

Each table has its source. verified: read in the source named. copy: read in a third party's copy of it. facts: from the
project's notes. from memory: to be confirmed where it matters.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

Version = tuple[int, ...]

OLDEST_RUNTIME: dict[str, Version] = {
    # `exec --env` and --cleanenv behave alike from this version on; 3.0 to 3.5 and 2.x work, with SINGULARITYENV_ only.
    "singularity": (2, 5),  # facts: ABCI 1.0 in 2018 had Singularity 2.5.2
    "apptainer": (1, 0),  # the first Apptainer
}

OLDEST_PYTHON: Version = (3, 10)  # of torusrun's own training: 'requires-python' of pyproject.toml
OLDEST_TORCH: Version = (2, 6)  # likewise: the extra 'train' of pyproject.toml

# Hydra starts the programs of both: MPICH and Intel MPI have one ABI (libmpi.so.12) and speak PMI 1 and 2 with it
# (verified: MPICH ABI Compatibility Initiative; seen: MPICH 4.0.2).
HYDRA = frozenset({"mpich", "intel"})
# What a family needs of srun. Open MPI speaks only PMIx, unless it was built with Slurm's own PMI. No distribution
# does that (facts: "Without --mpi=pmix MPI_Init may abort"). MPICH and Intel speak PMI 2 and 1; mpi/pmi2 serves both.
SLURM_PMI: dict[str, frozenset[str]] = {
    "openmpi": frozenset({"pmix"}),
    "mpich": frozenset({"pmi2", "cray_shasta", "pmix"}),
    "intel": frozenset({"pmi2", "cray_shasta", "pmix"}),
}

# CUDA version -> lowest Linux driver. From 11 on one driver serves a whole major version.
OLDEST_DRIVER: tuple[tuple[Version, Version], ...] = (
    ((9, 0), (384, 81)),  # copy: NVIDIA, CUDA Toolkit release notes, table of driver versions
    ((9, 1), (387, 26)),  # copy: as above; another copy has 390.46
    ((9, 2), (396, 26)),  # copy: as above
    ((10, 0), (410, 48)),  # copy: as above
    ((10, 1), (418, 39)),  # copy: as above
    ((10, 2), (440, 33)),  # copy: as above
    ((11, 0), (450, 80, 2)),  # copy: NVIDIA, CUDA compatibility, minor version compatibility
    ((12, 0), (525, 60, 13)),  # copy: as above
    ((13, 0), (580, 65, 6)),  # copy: CUDA 13.0 release notes; "R580 or newer"
)

LIBMPI = re.compile(r"lib(?:mpi|mpich)\.so\.(\d+)")
OPENMPI_SONAMES = range(20, 100)  # Open MPI 2 and 3 are libmpi.so.20, 3 to 5 libmpi.so.40; MPICH's is libmpi.so.12


def version(text: str) -> Version:
    """The leading numbers of a version: '535.104.05' is (535, 104, 5); () if it has none."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    return tuple(int(n) for n in match[1].split(".")) if match else ()


def oldest_driver(cuda: Version) -> Version | None:
    """The lowest driver for a CUDA version; None if the table has none."""
    if not cuda or cuda[0] > OLDEST_DRIVER[-1][0][0]:
        return None
    floors = [driver for since, driver in OLDEST_DRIVER if since <= cuda[:2]]
    return floors[-1] if floors else None


def runs_on(architectures: tuple[str, ...], gpu: str) -> bool:
    """Whether one of torch's architectures runs on a GPU ('sm_70').

    A cubin runs on its own major version, from its own minor version on. compute_XY is PTX, compiled for any newer GPU.
    A suffix (sm_90a) binds to one GPU. From memory: NVIDIA, CUDA C++ programming guide, binary and PTX compatibility.
    """
    if not gpu.startswith("sm_"):  # an AMD GPU, as in gfx90a: its code runs on no other
        return gpu in architectures
    return gpu in architectures or any(_serves(a, _capability(gpu)) for a in architectures)


def _serves(architecture: str, gpu: tuple[int, int]) -> bool:
    if not re.fullmatch(r"(sm|compute)_\d{2,3}", architecture):
        return False
    has = _capability(architecture)
    return has <= gpu if architecture.startswith("compute") else has[0] == gpu[0] and has[1] <= gpu[1]


def _capability(architecture: str) -> tuple[int, int]:
    digits = re.sub(r"\D", "", architecture)
    return int(digits[:-1] or 0), int(digits[-1:] or 0)


@dataclass(frozen=True)
class MpiLibrary:
    """An MPI: its family (openmpi, mpich, intel), and its version as it prints it."""

    family: str
    version: str

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


def parse_mpi(output: str) -> MpiLibrary | None:
    """The MPI that `mpirun --version` of any family names."""
    for family, pattern in (
        ("openmpi", r"\(Open(?: MPI|RTE)\) (\S+)"),
        ("intel", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"(?:HYDRA build details|MPICH)[\s\S]*?Version:\s+(\S+)"),
    ):
        if match := re.search(pattern, output):
            return MpiLibrary(family, match[1])
    return None


def same_abi(family: str, other: str) -> bool:
    """Whether programs of one family load the libraries of the other."""
    return family == other or {family, other} <= HYDRA


def family_of(library: str) -> str | None:
    """openmpi or mpich (Intel MPI has the same ABI) by the name of a library, as in libmpi.so.40; None for another."""
    match = LIBMPI.search(library)
    if not match:
        return None
    return "openmpi" if int(match[1]) in OPENMPI_SONAMES else "mpich"


def parse_slurm_pmi(output: str) -> frozenset[str] | None:
    """The names that `srun --mpi=list` prints, as in none, pmi2, pmix, pmix_v4; None if it lists nothing."""
    listed = re.split(r"MPI (?:plugin )?types are\.*", output)
    if len(listed) == 1 and not re.search(r"^srun: (?:none|pmi2|pmix\w*|cray_shasta)$", output, re.MULTILINE):
        return None
    return frozenset(re.findall(r"\b(none|pmi2|pmix_v\d+|pmix|cray_shasta|openmpi)\b", listed[-1]))


def parse_gpus(output: str) -> tuple[str | None, tuple[str, ...]]:
    """(driver, architectures) from `nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader`."""
    rows = re.findall(r"^\s*(\d+(?:\.\d+)+)\s*,\s*(\d+)\.(\d)\s*$", output, re.MULTILINE)
    return (rows[0][0] if rows else None), tuple(sorted({f"sm_{major}{minor}" for _, major, minor in rows}))


def parse_compat(output: str) -> str:
    """The newest driver among files of cuda-compat, as in compat/libcuda.so.560.35.03; '' if there is none."""
    return max(re.findall(r"/compat/\S*libcuda\.so\.(\d+(?:\.\d+)+)", output), key=version, default="")


def parse_glibc(output: str) -> str | None:
    """The version from the line of the product in `ldd --version`; None for another C library."""
    match = re.search(r"^ldd \(.*(?:GLIBC|GNU libc).*?(\d+\.\d+)[ \t]*$", output, re.IGNORECASE | re.MULTILINE)
    return match[1] if match else None


def parse_ldd(path: str, output: str, exit_code: int) -> Library:
    """The library from the output of `ldd PATH`: glibc's has `NAME => not found`, `version `GLIBC_2.34' not found`."""
    missing = dict.fromkeys(re.findall(r"^\s*(\S+) => not found", output, re.MULTILINE))
    glibc = dict.fromkeys(re.findall(r"version `GLIBC_([\d.]+)' not found", output))
    mpi = LIBMPI.search(output)
    is_static = re.search(r"not a dynamic executable|statically linked", output) is not None
    failed = exit_code != 0 and not missing and not glibc and not is_static
    last = (output.strip().splitlines() or [f"ldd ended with exit code {exit_code}"])[-1]
    return Library(path, tuple(missing), tuple(glibc), mpi[0] if mpi else None, last if failed else "")


def parse_probe(output: str) -> dict[str, Any]:
    """The facts that the probe printed, whatever text is around them; {} if it printed nothing."""
    match = re.search(r"^TORUSRUN-PROBE (\{.*\})$", output, re.MULTILINE)
    try:
        report = ast.literal_eval(match[1]) if match else {}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    kinds = {"training": bool, "architectures": list}
    known = report.items() if type(report) is dict else ()
    return {name: value for name, value in known if value is None or type(value) is kinds.get(name, str)}


def parse_questions(output: str) -> dict[str, tuple[str, int]]:
    """(answer, exit code) of each question by its name, from the output of the script that asks them."""
    blocks = re.findall(r"^TORUSRUN-ASKED (.*)\n([\s\S]*?)\nTORUSRUN-ANSWERED (\d+)$", output, re.MULTILINE)
    return {name: (answer.rstrip("\n"), int(code)) for name, answer, code in blocks}
