"""The command and the environment that run a rank's program inside an image.

It needs only the standard library, since every rank computes it on its node. The container starts with an empty
environment (`--cleanenv`) and gets the variables named here. They travel as APPTAINERENV_NAME: `--env` cuts values at
commas (NCCL_IB_HCA=mlx5_0,mlx5_1 breaks), and old versions lack it. The image's shell reads values that cannot travel
so from a file. No value is a word of the command, since `ps` shows those to everybody.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.process import ENTRY
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.images.runtime import Runtime, own_environment

# Variables that are passed from the job's environment: ranks, GPUs, communication, and variables of PMIx clients.
PASSED = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_*", "GOMP_*", "KMP_*",
    "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_*", "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES", "HSA_*", "MIOPEN_*", "NCCL_*", "RCCL_*", "UCX_*", "GLOO_*", "TORCH_*",
    "PYTORCH_*", "TORUSRUN_*", "PMI_*", "PMI2_*", "PMIX_*", "OMPI_*", "PRTE_*", "OPAL_*", "SHARP_*", "HCOLL_*",
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST",
    "SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_MPI_TYPE", "SLURM_PMIX*",
    "SLURMD_NODENAME", "PBS_JOBID", "PBS_LOCALDIR", "JOB_ID", "SGE_LOCALDIR", "LC_ALL", "LANG", "TZ",
)  # fmt: skip
NOT_PASSED = ("OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "OMPI_MCA_plm*", "PRTE_MCA_plm*")  # host paths
PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./ -]+")
KEPT = re.compile(r"[ -~\n]+")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
READ_ONLY = ("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID")  # read-only in some shells
FROM_FILE = ("/bin/sh", "-c", '. "$0" && exec "$@"')
TRAINING = "/opt/torusrun"  # the folder in images that holds `training`
ON_PATH = f"{TRAINING}/{ENTRY}"  # below it: the folder with the package `torusrun`, for scripts
HOST_MPI = "/opt/host-mpi"  # the mount point of a site's own MPI


@dataclass(frozen=True)
class Bind:
    """A folder or file of the host, seen in the container at `inside`."""

    host: str
    inside: str = ""
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Bind:
        """A bind as a site writes it: /host, /host:/inside or /host:/inside:ro. Raises ValueError for another form."""
        match = re.fullmatch(r"(/[^:,]*)(?::(/[^:,]*))?(?::(ro|rw))?", text)
        if not match:
            raise ValueError(f"{text!r} is not a bind; write /host, /host:/inside or /host:/inside:ro")
        return cls(match[1], match[2] or "", match[3] == "ro")

    def __str__(self) -> str:
        return ":".join([self.host, self.inside or self.host, *(["ro"] if self.read_only else [])])


@dataclass(frozen=True)
class ContainerExec:
    """The container in which the programs of a run start."""

    runtime: Runtime
    image: str
    binds: tuple[Bind, ...] = ()
    gpu: str = ""  # nv, nvccli or rocm: the option that brings in the host's GPUs and their libraries
    writable: bool = False  # in memory, until the program ends
    directory: str = ""
    extra: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)  # default values for every program

    def only_asked(self, directory: str = "/") -> ContainerExec:
        """The same container for a short query on a machine that may have no GPU, without writing."""
        return replace(self, gpu="", writable=False, directory=directory)


@dataclass(frozen=True)
class SecretVariables:
    """Secret variables, and the file that holds them already: as `exported` writes it, the same path inside."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    file: str = ""


NO_SECRETS = SecretVariables()


@dataclass(frozen=True)
class ContainerLaunch:
    """A command with its whole environment and the text of its file of variables."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    file_text: str = ""  # '' if it needs no file


def inside(
    container: ContainerExec,
    command: Sequence[str],
    given: Mapping[str, str],
    inherited: Mapping[str, str],
    file: str = "",
    secret: SecretVariables = NO_SECRETS,
) -> ContainerLaunch:
    """Run `command` in the container with the variables `given`, and those of `inherited` that PASSED names.

    `file` is an absolute path, the same on the host and inside. Before the caller starts the command, it writes
    `file_text` there, readable only for its owner. Raises ValueError for an invalid name of a variable, for a bind with
    a colon or comma in a path, or if values need a file and `file` is ''. Values of `secret` are written to no file.
    """
    hidden = secret.values
    variables = {**{k: v for k, v in inherited.items() if passes(k)}, **container.environment, **given, **hidden}
    if wrong := [name for name in variables if not NAME.fullmatch(name)]:
        raise ValueError(f"{wrong[0]!r} is not a variable's name")
    left = {k: v for k, v in variables.items() if not _carries(container.runtime, k, v)}
    written = {k: v for k, v in left.items() if k not in hidden}
    if written and not file:
        raise ValueError(f"the values of {', '.join(written)} have to be written into a file, and none is named")
    if wrong := [name for name in left if name in READ_ONLY]:
        raise ValueError(f"{wrong[0]!r} is a variable of the shell itself and cannot be given a value like this one")
    carried = {f"{container.runtime.prefix}ENV_{k}": v for k, v in variables.items() if k not in left}
    files = [*([file] if written else []), *([secret.file] if {*left} & {*hidden} else [])]
    setting = [word for path in files for word in (*FROM_FILE, path)]
    environment = {**own_environment(inherited), **carried}
    return ContainerLaunch((*_exec(container), *setting, *command), environment, exported(written))


def exported(variables: Mapping[str, str]) -> str:
    """The text of a file from which a shell reads these variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def words_needed(container: ContainerExec) -> list[str]:
    """The options and commands that this container needs and some runtimes lack."""
    writable = ["--writable-tmpfs"] if container.writable else []
    return [f"--{container.gpu}", *writable] if container.gpu else writable


def passes(name: str) -> bool:
    """Whether a variable of the job's environment is passed into the container."""
    return any(fnmatchcase(name, p) for p in PASSED) and not any(fnmatchcase(name, p) for p in NOT_PASSED)


def _exec(container: ContainerExec) -> list[str]:
    runtime, needed = container.runtime, words_needed(container)
    if lacking := [why for word in needed if (why := runtime.lacks(word))]:
        raise ValueError(lacking[0])
    options = ["--cleanenv", *(["--no-eval"] if runtime.has("--no-eval") else []), *needed]
    for bind in container.binds:
        if any(mark in path for path in (bind.host, bind.inside) for mark in ":,"):
            raise ValueError(f"a bind's path must be without ':' and ',': {bind}")
        options += ["--bind", str(bind)]
    options += ["--pwd", container.directory] if container.directory else []
    # Without --quiet a runtime writes what it does into the log of every rank.
    return [runtime.command, "--quiet", "exec", *options, *container.extra, container.image]


def _carries(runtime: Runtime, name: str, value: str) -> bool:
    """Whether a prefixed variable brings the value in unchanged.

    An empty value becomes unset. HOME is refused. A control character can leave the variable unset. The runtime's shell
    merges a carriage return and a line break into one line break (seen with Apptainer 1.4.5).
    """
    return name != "HOME" and bool((KEPT if runtime.has("--no-eval") else PLAIN).fullmatch(value))


def own_training() -> Path:
    """The training package on this machine, which is copied into images or bound."""
    package = ROOT / "training"
    if (package / "__main__.py").is_file():
        return package
    raise UserError(f"{package}: the training package is missing; reinstall torusrun")


def needed(bound_training: bool, host_mpi: str | None = None) -> tuple[Bind, ...]:
    """The host's training package, unless the image has it, and the site's MPI at `host_mpi`, if it is used."""
    package = (Bind(str(own_training()), f"{TRAINING}/training", read_only=True),) if bound_training else ()
    return (*package, *((Bind(host_mpi, HOST_MPI, read_only=True),) if host_mpi else ()))


def variables(bound_training: bool) -> dict[str, str]:
    """The variables by which every program in the image, rank or check, finds the bound files."""
    return {"PYTHONPATH": ON_PATH} if bound_training else {}
