"""Facts that real programs gave: the recorded answers of images and hosts, and what a run wants of them."""

from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.images.checks.answers import (
    MpiLibrary,
    parse_mpi,
    parse_questions,
    parse_slurm_pmi,
)
from torusrun.orchestrator.images.checks.facts import HostFacts, ImageFacts
from torusrun.orchestrator.images.checks.findings import Wanted
from torusrun.orchestrator.images.checks.image_facts import Inside, by_its_python, by_its_shell
from torusrun.orchestrator.images.command import ContainerExec
from torusrun.orchestrator.images.runtime import Runtime

RECORDED = Path(__file__).parents[1] / "recorded" / "containers"
NEW = Runtime("apptainer", "apptainer", (1, 4, 5))


def said(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def recorded(shell: str, python: str = "", program: str = "", folder: str = "") -> ImageFacts:
    """The facts of an image, from what its shell and its Python really answered."""
    asks = Inside(ContainerExec(NEW, "x.sif"), {}, program, [folder] if folder else [])
    known = by_its_shell(ImageFacts("/shared/x.sif", machine="x86_64"), parse_questions(said(shell)), asks)
    return by_its_python(known, said(python)) if python else known


HOST_MPI = "/opt/host-mpi"
MPICH = recorded("bullseye", "bullseye.python", "mpichversion", HOST_MPI)
OPENMPI = recorded("bookworm", "bookworm.python", "ompi_info")
# A program of Open MPI in an image whose mpirun is MPICH's.
OPEN_LDD = "/opt/solver\n\tlibmpi.so.40 => /opt/ompi/lib/libmpi.so.40 (0x00007fa48ac70000)"
SOLVER = Inside(ContainerExec(NEW, "x.sif"), program="solver")
UNKNOWN_OPENMPI = by_its_shell(
    ImageFacts("/shared/x.sif"), {**parse_questions(said("bullseye")), "program": (OPEN_LDD, 0)}, SOLVER
)
LACKS_OPENMPI = by_its_shell(
    ImageFacts("/shared/x.sif"),
    {**parse_questions(said("bullseye")), "program": ("/opt/solver\n\tlibmpi.so.40 => not found", 0)},
    SOLVER,
)
BUSYBOX = recorded("busybox", program="python3")
CPU_TORCH = recorded("bookworm", "torch-cpu.python")
# The words of PyTorch's own wheels, which need no GPU to be asked but gigabytes to be installed.
CUDA_TORCH = replace(
    CPU_TORCH, torch="2.13.0+cu126", cuda="12.6", architectures=("sm_50", "sm_60", "sm_70", "sm_80", "sm_90")
)
NO_VERBS = replace(CUDA_TORCH, verbs=False, verbs_error="libibverbs.so.1: cannot open shared object file", providers=())
HOPPER = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120")

OPENMPI_HERE = parse_mpi("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n")
INTEL_HERE = MpiLibrary("intel", "2021.18.1")
HOST = HostFacts(NEW, "x86_64", driver="535.104.05")
BY_MPIRUN = replace(HOST, mpi=OPENMPI_HERE)
SLURM, BARE_SLURM = said("srun-pmix"), said("srun-without-pmix")
BY_SRUN = replace(HOST, slurm_pmi=parse_slurm_pmi(SLURM))
BY_BARE_SRUN = replace(HOST, slurm_pmi=parse_slurm_pmi(BARE_SLURM))

V100 = ("sm_70",)
TRAINING = Wanted(launcher="mpirun", cluster=True, nodes=2, uses_gpus=True, gpus=V100, driver="535.104.05")
ON_CPUS = replace(TRAINING, uses_gpus=False)
COMMAND = Wanted(False, "maybe", launcher="mpirun", cluster=True, nodes=2)
BY_SLURM = replace(COMMAND, launcher="srun")
BOUND = replace(COMMAND, host_mpi=HOST_MPI)
