"""The tables of compatible versions, each with its source.

verified: read in the source named. copy: read in a third party's copy of it. facts: from the project's notes.
from memory: to be confirmed where it matters.
"""

from __future__ import annotations

import re

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

# PMIx generation of the client (in the image) -> generations of servers (mpirun's or Slurm's) that it works with.
# The same generation always works. PMIx promises more from 1.2.5/2.0.3/2.1.1/3.0 on (verified: Open MPI wiki, "OMPI
# PMIx cross version matrix", 2018-04-17: 1 with 2 to 3 "designed to work, needs to be tested"). Generations that are
# not adjacent differed in the shared-memory store (from memory). So one step apart counts as compatible, more does not.
PMIX_MEETS: dict[int, frozenset[int]] = {
    1: frozenset({1}),
    2: frozenset({2, 3}),
    3: frozenset({2, 3, 4}),
    4: frozenset({3, 4, 5}),
    5: frozenset({4, 5, 6}),
    6: frozenset({5, 6}),
}

# Open MPI's major version -> PMIx generation that it embeds. A distribution may link another one, which then counts.
OPENMPI_PMIX: dict[int, int] = {
    2: 1,  # verified: as above, Open MPI 2.1.3 has PMIx 1.2.5
    3: 2,  # verified: as above, Open MPI 3.1 has PMIx 2.1
    4: 3,  # facts: "Open MPI 3.x/4.x speak PMIx 2/3"
    5: 4,  # verified: open-mpi/ompi PR 11998, 5.0 requires at least PMIx 4.2.0
}


def version(text: str) -> Version:
    """The leading numbers of a version: '535.104.05' is (535, 104, 5); () if it has none."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", text)
    return tuple(int(n) for n in match[1].split(".")) if match else ()


def oldest_driver(cuda: Version) -> Version | None:
    """The lowest driver for a CUDA version; None if that is older or newer than the table."""
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
