"""Each mismatch has its outcome, its message and its evidence: facts in, findings out."""

from dataclasses import replace

import pytest

from tests.unit.containers.recorded_facts import (
    BOUND,
    BUSYBOX,
    BY_BARE_SRUN,
    BY_MPIRUN,
    BY_SLURM,
    BY_SRUN,
    COMMAND,
    CPU_TORCH,
    CUDA_TORCH,
    HOPPER,
    HOST,
    INTEL_HERE,
    LACKS_OPENMPI,
    MPICH,
    NO_VERBS,
    ON_CPUS,
    OPENMPI,
    TRAINING,
    UNKNOWN_OPENMPI,
)
from torusrun.orchestrator.images.checks.answers import Library, MpiLibrary
from torusrun.orchestrator.images.checks.check import check
from torusrun.orchestrator.images.checks.facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.checks.findings import KINDS, Finding, Wanted
from torusrun.orchestrator.images.runtime import Runtime

Row = tuple[str, Wanted, HostFacts, ImageFacts, str, str, str]
ERROR, WARNING, FITS, UNKNOWN = "error", "warning", "fits", "could not be looked at"

BY_PYXIS = replace(COMMAND, launcher="srun", pyxis=True)
MISMATCHES: list[Row] = [
    (
        "MPICH inside and Open MPI outside", COMMAND, BY_MPIRUN, MPICH,
        "mpi-family", ERROR, "the host's MPI is openmpi 4.1.4, the image's mpich 3.4.1",
    ),
    (
        "Open MPI inside and Intel MPI outside", COMMAND, replace(HOST, mpi=INTEL_HERE), OPENMPI,
        "mpi-family", ERROR, "the host's MPI is intel 2021.18.1, the image's openmpi 4.1.4",
    ),
    (
        "MPICH inside and Intel MPI outside", COMMAND, replace(HOST, mpi=INTEL_HERE), MPICH,
        "mpi-family", FITS, "intel 2021.18.1 of the host starts programs of mpich 3.4.1",
    ),
    (
        "Slurm without PMIx, which the site asks for", replace(BY_SLURM, srun_mpi="pmix"), BY_BARE_SRUN, CPU_TORCH,
        "slurm-pmi", ERROR, "'launcher_args' has --mpi=pmix, which this Slurm does not offer",
    ),
    (
        "Slurm without PMIx and Open MPI", BY_SLURM, BY_BARE_SRUN, OPENMPI,
        "slurm-pmi", ERROR, "openmpi 4.1.4 of the image needs pmix of srun, which offers cray_shasta, none, pmi2",
    ),
    (
        "Slurm without PMIx and MPICH", replace(BY_SLURM, srun_mpi="pmi2"), BY_BARE_SRUN, MPICH,
        "slurm-pmi", FITS, "srun offers pmi2, which mpich 3.4.1 supports",
    ),
    (
        "Slurm with one generation of PMIx and MPICH", BY_SLURM, replace(HOST, slurm_pmi=frozenset({"pmix_v4"})), MPICH,
        "slurm-pmi", UNKNOWN, "'launcher_args: [--mpi=pmix_v4]' of the site sets it",
    ),
    (
        "Slurm with PMIx and Open MPI", replace(BY_SLURM, srun_mpi="pmix"), BY_SRUN, OPENMPI,
        "slurm-pmi", FITS, "srun offers pmix, which openmpi 4.1.4 supports",
    ),
    (
        "Slurm that is not here", BY_SLURM, HOST, OPENMPI,
        "slurm-pmi", UNKNOWN, "whether srun offers pmix, which openmpi 4.1.4 needs",
    ),
    (
        "Open MPI 3.1", COMMAND, BY_MPIRUN, replace(OPENMPI, mpi=MpiLibrary("openmpi", "3.1.3")),
        "mpi-major", ERROR, "the host has openmpi 4.1.4, the image 3.1.3",
    ),
    (
        "no MPI for a program that needs one", COMMAND, BY_MPIRUN,
        replace(CPU_TORCH, mpi=None, program=Library("/opt/solver", ("libmpi.so.40",))),
        "mpi-missing", ERROR, "the program needs libmpi.so.40, which the image does not have",
    ),
    (
        "a program of an Open MPI beside the mpirun of MPICH", COMMAND, BY_MPIRUN, UNKNOWN_OPENMPI,
        "mpi-family", FITS, "openmpi 4.1.4 of the host starts programs of openmpi",
    ),
    (
        "a program of Open MPI in an image that has only MPICH", COMMAND, BY_MPIRUN, LACKS_OPENMPI,
        "mpi-missing", ERROR, "the program needs libmpi.so.40, which the image does not have",
    ),
    (
        "a program of the image's MPICH under a bound Open MPI", BOUND, BY_MPIRUN, MPICH,
        "mpi-family", ERROR, "the host's MPI is openmpi 4.1.4, the image's mpich 3.4.1",
    ),
    (
        "a program of MPI under spawn", replace(COMMAND, launcher="spawn", ranks=4), HOST,
        replace(OPENMPI, program=Library("/opt/solver", mpi="/lib/libmpi.so.40")),
        "mpi-spawn", ERROR, "is linked with MPI, and the launcher 'spawn' would start 4 programs of one rank",
    ),
    (
        "libraries of the host's MPI", BOUND, BY_MPIRUN, MPICH,
        "host-mpi-libraries", ERROR, "needs libopen-rte.so.40, libopen-pal.so.40, glibc 2.34, not found in the image",
    ),
    (
        "a host's MPI that loads", BOUND, BY_MPIRUN,
        replace(OPENMPI, bound_mpi=(Library("/opt/host-mpi/lib/libmpi.so.40"),)),
        "host-mpi-libraries", FITS, "finds all that it needs in the image",
    ),
    (
        "Python too old", TRAINING, HOST, MPICH,
        "python-old", ERROR, "Python 3.9.2 of the image is too old: torusrun's training needs 3.10 or newer",
    ),
    ("no Python", TRAINING, HOST, BUSYBOX, "python-missing", ERROR, "the image has no python3"),
    (
        "no Python for a command that is one", COMMAND, BY_MPIRUN, BUSYBOX,
        "program-missing", ERROR, "the command's program is not in the image",
    ),
    ("no torch", TRAINING, HOST, OPENMPI, "torch-missing", ERROR, "the image's Python has no torch"),
    (
        "torch too old", TRAINING, HOST, replace(CUDA_TORCH, torch="1.0.1", cuda="9.0"),
        "torch-old", ERROR, "torch 1.0.1 of the image is too old: torusrun's training needs 2.6 or newer",
    ),
    (
        "CPU torch on GPUs", TRAINING, HOST, CPU_TORCH,
        "torch-without-cuda", ERROR, "torch 2.13.0+cpu of the image is built without CUDA",
    ),
    (
        "CPU torch on CPUs of nodes with GPUs", ON_CPUS, HOST, CPU_TORCH,
        "torch-without-cuda", FITS, "the run uses no GPU: any torch works",
    ),
    (
        "CPU torch beside a command's own program", replace(COMMAND, uses_gpus=True), BY_MPIRUN, CPU_TORCH,
        "torch-without-cuda", WARNING, "torch 2.13.0+cpu of the image is built without CUDA",
    ),
    (
        "sm_90 on V100", TRAINING, HOST, replace(CUDA_TORCH, architectures=HOPPER),
        "gpu-architecture", ERROR, "torch 2.13.0+cu126 of the image has no kernels for sm_70, only sm_75",
    ),
    (
        "GPUs that nobody names", replace(TRAINING, gpus=()), HOST, CUDA_TORCH,
        "gpu-architecture", UNKNOWN, "'node.architecture' of the site can name them",
    ),
    (
        "driver too old", replace(TRAINING, driver="470.57.02"), HOST, CUDA_TORCH,
        "driver-old", ERROR, "the driver 470.57.02 is older than 525.60.13, the oldest for CUDA 12.6",
    ),
    (
        "driver too old, with cuda-compat inside", replace(TRAINING, driver="470.57.02"), HOST,
        replace(CUDA_TORCH, compat="560.35.03"),
        "driver-old", WARNING, "cuda-compat 560.35.03 of the image supports data-centre GPUs",
    ),
    (
        "driver too old, with a cuda-compat that is too old", replace(TRAINING, driver="470.57.02"), HOST,
        replace(CUDA_TORCH, compat="510.47.03"),
        "driver-old", ERROR, "the driver 470.57.02 is older than 525.60.13, the oldest for CUDA 12.6",
    ),
    (
        "a login node with other GPUs", replace(TRAINING, gpus=()), replace(HOST, gpus=("sm_35",)), CUDA_TORCH,
        "gpu-architecture", UNKNOWN, "'node.architecture' of the site can name them",
    ),
    (
        "a login node with an older driver", replace(TRAINING, driver=None), replace(HOST, driver="470.57.02"),
        CUDA_TORCH, "driver-old", UNKNOWN, "'container.driver' of the site can name it",
    ),
    (
        "driver that nobody names", replace(TRAINING, driver=None), replace(HOST, driver=None), CUDA_TORCH,
        "driver-old", UNKNOWN, "'container.driver' of the site can name it",
    ),
    (
        "aarch64 on x86_64", TRAINING, HOST, replace(CUDA_TORCH, machine="aarch64"),
        "image-architecture", ERROR, "the image is for aarch64, and the nodes' Python for x86_64",
    ),
    (
        "aarch64 inside a SIF of x86_64", TRAINING, HOST, replace(CUDA_TORCH, starts=False, foreign=True),
        "image-architecture", ERROR, "the image's programs are for another processor than this machine's",
    ),
    (
        "an image in /tmp", ON_CPUS, HOST, replace(CPU_TORCH, shared=False, local_folder="/tmp"),
        "image-not-shared", ERROR, "/shared/x.sif is in /tmp, which is different on every node",
    ),
    (
        "an image on a disk of this machine", ON_CPUS, HOST, replace(CPU_TORCH, shared=False),
        "image-not-shared", WARNING, "is on a disk of this machine, unless the nodes mount that disk",
    ),
    (
        "an image on an unknown file system", ON_CPUS, HOST, replace(CPU_TORCH, shared=None),
        "image-not-shared", UNKNOWN, "whether the nodes see /shared/x.sif",
    ),
    (
        "no InfiniBand inside", replace(TRAINING, hcas=("mlx5_0", "mlx5_1")), HOST, NO_VERBS,
        "verbs-missing", ERROR, "the nodes have mlx5_0, mlx5_1, and libibverbs does not load in the image",
    ),
    (
        "InfiniBand without its driver", replace(TRAINING, hcas=("mlx5_0",)), HOST,
        replace(CUDA_TORCH, providers=("hns",)),
        "verbs-missing", ERROR, "libibverbs of the image has no driver for mlx5",
    ),
    (
        "InfiniBand inside", replace(TRAINING, hcas=("mlx5_0",)), HOST, CUDA_TORCH,
        "verbs-missing", FITS, "libibverbs loads in the image, with the adapters' driver",
    ),
    (
        "no InfiniBand inside for one node", replace(TRAINING, hcas=("mlx5_0",), nodes=1), HOST, NO_VERBS,
        "verbs-missing", WARNING, "libibverbs does not load in the image",
    ),
    (
        "no InfiniBand in an image without ctypes", replace(COMMAND, hcas=("mlx5_0",), uses_gpus=True),
        BY_MPIRUN, MPICH,
        "verbs-missing", UNKNOWN, "whether libibverbs loads in the image",
    ),
    (
        "no runtime on a login node", ON_CPUS, replace(HOST, runtime=None), ImageFacts("/shared/x.sif", starts=None),
        "runtime-missing", UNKNOWN, "no apptainer or singularity is found on this machine",
    ),
    (
        "no runtime on the machine that runs it", replace(ON_CPUS, cluster=False), replace(HOST, runtime=None),
        CPU_TORCH,
        "runtime-missing", ERROR, "neither apptainer nor singularity is found here",
    ),
    (
        "an old runtime", ON_CPUS, replace(HOST, runtime=Runtime("s", "singularity", (2, 4))), CPU_TORCH,
        "runtime-old", ERROR, "singularity 2.4 is older than 2.5",
    ),
    (
        "modules that are not here", ON_CPUS, replace(HOST, modules_failed="module: command not found"), CPU_TORCH,
        "modules", UNKNOWN, "the site's modules do not load here",
    ),
    (
        "a folder to bind", ON_CPUS, replace(HOST, missing_paths=("/opt/hpcx",)), CPU_TORCH,
        "bind-missing", ERROR, "/opt/hpcx is to be bound but does not exist",
    ),
    (
        "an image that cannot be read", ON_CPUS, HOST,
        ImageFacts("/shared/x.sif", False, asked={"file": "/shared/x.sif: Permission denied"}),
        "image-unreadable", ERROR, "/shared/x.sif cannot be read: Permission denied",
    ),
    (
        "an image in which nothing starts", ON_CPUS, HOST,
        ImageFacts("/shared/x.sif", starts=False, asked={"start": "/bin/sh in the image: while reading: corrupted"}),
        "image-broken", ERROR, "no program starts in the image: corrupted",
    ),
    (
        "an image without a shell", COMMAND, BY_MPIRUN, ImageFacts("/shared/x.sif", starts=None, shell=False),
        "image-broken", UNKNOWN, "the image has no /bin/sh, which the checks need",
    ),
    (
        "an image that only this machine does not start", COMMAND, BY_MPIRUN, ImageFacts("/shared/x.sif", starts=None),
        "image-broken", UNKNOWN, "the image does not start on this machine; it may on the nodes",
    ),
    (
        "a torch that is broken", ON_CPUS, HOST,
        replace(CPU_TORCH, torch=None, torch_error="libcublas.so.12: cannot open"),
        "torch-broken", ERROR, "torch does not import in the image: libcublas.so.12: cannot open",
    ),
    (
        "no training", ON_CPUS, HOST, replace(CPU_TORCH, training=False),
        "training-missing", ERROR, "the package 'training' is not found in the image",
    ),
    (
        "srun without Pyxis", BY_PYXIS, replace(HOST, pyxis=False), CPU_TORCH,
        "pyxis-missing", ERROR, "srun has no --container-image",
    ),
    ("srun with Pyxis", BY_PYXIS, replace(HOST, pyxis=True), CPU_TORCH, "pyxis-missing", FITS, "the options of Pyxis"),
    ("no srun here", BY_PYXIS, HOST, CPU_TORCH, "pyxis-missing", UNKNOWN, "whether Slurm has Pyxis here"),
    ("a command by Pyxis without Python", BY_PYXIS, HOST, BUSYBOX, "pyxis-python", ERROR, "the image has no python3"),
    (
        "a command by Pyxis with an old Python", BY_PYXIS, HOST, MPICH,
        "pyxis-python", ERROR, "Python 3.9.2 of the image is too old: the wrapper of a rank needs 3.10",
    ),
    ("a command by Pyxis", BY_PYXIS, HOST, CPU_TORCH, "pyxis-python", FITS, "the image has Python 3.11"),
]  # fmt: skip


@pytest.mark.parametrize("row", MISMATCHES, ids=[row[0] for row in MISMATCHES])
def test_each_mismatch_has_its_outcome_and_its_message(row: Row) -> None:
    _, wanted, host, image, kind, outcome, message = row
    said = check(wanted, host, image)
    found = [finding for finding in said if finding.kind == kind and message in finding.what]
    assert [_outcome(finding) for finding in found] == [outcome], said
    (finding,) = found
    assert finding.evidence and len(str(finding).splitlines()) == 1
    if finding.outcome == "does not fit":
        assert finding.why in str(finding) and finding.mend in str(finding)


def _outcome(finding: Finding) -> str:
    return finding.severity if finding.outcome == "does not fit" else finding.outcome


def test_every_kind_is_reached() -> None:
    assert {row[4] for row in MISMATCHES} == set(KINDS)
