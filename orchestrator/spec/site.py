"""The keys of a site: facts about a cluster that hold for every run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Annotated, Literal

from orchestrator.spec.about import about
from orchestrator.spec.kinds import (
    ARCHITECTURE,
    ASK,
    BIND,
    CPUS,
    DURATION,
    HOST,
    LINE,
    MICROSECONDS,
    NONE_OR_MORE,
    OPERAND,
    PER_NODE,
    RATE,
    SCHEDULER,
    SHELL,
    SIZE,
    UMASK,
    VALUE,
    VARIABLE,
    WORD,
    WRITABLE,
)
from orchestrator.spec.paths import expanded
from orchestrator.spec.topology import Topology


@dataclass(frozen=True)
class Node:
    """One node of the site, as a run takes it."""

    ranks: Annotated[int, PER_NODE] = field(default=1, metadata=about("ranks on a node: one per GPU"))
    architecture: Annotated[str, ARCHITECTURE] | None = field(
        default=None,
        metadata=about("the GPUs' architecture, as in sm_70 or gfx90a, for checks on a login node that has none"),
    )
    gpus: Annotated[int, NONE_OR_MORE] = field(default=0, metadata=about("GPUs to ask the scheduler for"))
    gpu_type: Annotated[str, WORD] | None = field(
        default=None,
        metadata=about("their type, as in v100: slurm's --gres=gpu:v100:4, pbs's resource gpu_type; default: any"),
    )
    cpus_per_rank: Annotated[int, PER_NODE] = field(default=1, metadata=about("cores to ask for per rank"))
    memory_bytes: Annotated[int, SIZE] | None = field(
        default=None, metadata=about("memory of a node to ask for; default: the scheduler's", key="memory")
    )
    hcas: tuple[Annotated[str, LINE], ...] = field(
        default=(), metadata=about("InfiniBand adapters in the order of the ranks beside them, as in [mlx5_0, mlx5_1]")
    )
    gpu_cores: tuple[Annotated[str, CPUS], ...] = field(
        default=(),
        metadata=about(
            "CPUs beside each GPU, as nvidia-smi topo -m lists them, as in ['0-19,40-59']; ranks are bound to their "
            "share of them; default: not bound"
        ),
    )
    interface: Annotated[str, LINE] | None = field(
        default=None, metadata=about("network interface of the ranks' traffic, as in ib0; default: by host name")
    )
    inter_node_bytes_per_s: Annotated[float, RATE] = field(
        default=12.5e9,
        metadata=about("bandwidth of all adapters of a node together, one way", key="inter_node", former="network"),
    )
    intra_node_bytes_per_s: Annotated[float, RATE] = field(
        default=50e9,
        metadata=about(
            "bandwidth from one GPU to another in the same node, one way", key="intra_node", former="inside"
        ),
    )
    inter_node_latency_us: Annotated[float, MICROSECONDS] = field(
        default=5.0, metadata=about("microseconds of a message between nodes", former="network_latency_us")
    )
    intra_node_latency_us: Annotated[float, MICROSECONDS] = field(
        default=3.0, metadata=about("microseconds of a message within a node", former="inside_latency_us")
    )


@dataclass(frozen=True)
class ContainerSettings:
    """How this site builds images and runs programs in them."""

    runtime: Annotated[str, LINE] | None = field(
        default=None, metadata=about("apptainer or singularity, or its path; default: the one on PATH")
    )
    mpi: Literal["inside", "host"] = field(
        default="inside",
        metadata=about("the MPI of programs in the image: inside (the image's) or host (the site's)"),
    )
    host_mpi: Annotated[str, LINE] | None = field(
        default=None, metadata=about("folder of the site's MPI, bound into the image when mpi is host")
    )
    bind: tuple[Annotated[str, BIND], ...] = field(
        default=(), metadata=about("folders of the host to bind: /host, /host:/inside or /host:/inside:ro")
    )
    args: tuple[Annotated[str, LINE], ...] = field(default=(), metadata=about("further options of exec, one word each"))
    gpu: Literal["nv", "nvccli", "rocm", "none"] | None = field(
        default=None,
        metadata=about(
            "how the host's GPUs get into the container: nv, nvccli, rocm or none; default: rocm if node.architecture "
            "is AMD's, else nv"
        ),
    )
    writable: Annotated[str, WRITABLE] | None = field(
        default=None,
        metadata=about(
            "lets programs write into the image's file system: tmpfs (kept in memory until a rank ends), or a "
            "node-local folder in which each rank's changes stay; default: read-only"
        ),
    )
    verify: Literal["checksum", "signature"] = field(
        default="checksum",
        metadata=about(
            "the proof before ranks start: the image's checksum, or its signature too, by the keys in your keyring"
        ),
    )
    mount: Literal["rank", "node"] = field(
        default="rank",
        metadata=about("how often an image is mounted: once per rank, or once per node, by an instance of the runtime"),
    )
    cache: Annotated[str, LINE] = field(
        default="~/torusrun/images", metadata=about("folder of built images, on a file system that the nodes share")
    )
    stage: Annotated[str, LINE] | None = field(
        default=None, metadata=about("node-local folder to copy the image to before ranks start, as in $SGE_LOCALDIR")
    )
    build: Literal["fakeroot", "userns", "plain"] = field(
        default="fakeroot", metadata=about("how an image is built without root: fakeroot, userns or plain")
    )
    build_on: Literal["login", "job"] = field(
        default="login", metadata=about("where images are built: login (here) or job (of the scheduler)")
    )
    build_time_s: Annotated[float, DURATION] = field(
        default=3600.0, metadata=about("time limit of a build's job", key="build_time")
    )
    temporary: Annotated[str, LINE] | None = field(
        default=None, metadata=about("node-local folder for builds; default: beside the image")
    )
    compression: Literal["gzip", "lz4", "zstd"] | None = field(
        default=None, metadata=about("of built images: gzip, lz4 or zstd; default: the runtime's")
    )
    driver: Annotated[str, LINE] | None = field(
        default=None, metadata=about("the nodes' GPU driver, for checks on a login node that has none")
    )


@dataclass(frozen=True)
class Site:
    """A cluster, or this machine."""

    scheduler: Annotated[str, SCHEDULER] = field(
        metadata=about(
            "the scheduler: slurm, pbs (PBS Pro, OpenPBS), gridengine, local (this machine), or one of your "
            "own as package.module:Class"
        )
    )
    launcher: Literal["srun", "mpirun", "mpiexec", "mpiexec.hydra", "spawn"] = field(
        metadata=about(
            "the program that starts the ranks: srun, mpirun or mpiexec (Open MPI, MPICH or Intel MPI, recognised by "
            "its version), mpiexec.hydra (MPICH, Intel MPI), or spawn (processes of this machine)"
        )
    )
    node: Node = field(default_factory=Node, metadata=about("one node"))
    step_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = field(
        default_factory=dict,
        metadata=about(
            "by model: microseconds of a step on one rank besides its images; torusrun calibrate measures it"
        ),
    )
    image_us: dict[Annotated[str, LINE], Annotated[float, MICROSECONDS]] = field(
        default_factory=dict, metadata=about("by model: microseconds of one image on one rank, as in resnet-digits: 85")
    )
    topology: Topology | None = field(
        default=None,
        metadata=about("the switches above the nodes; without it ranks fill hosts in the scheduler's order"),
    )
    queue: Annotated[str, OPERAND] | None = field(default=None, metadata=about("partition or queue of its jobs"))
    account: Annotated[str, OPERAND] | None = field(default=None, metadata=about("account to charge"))
    runs: Annotated[str, LINE] = field(
        default="~/torusrun/runs", metadata=about("folder of run folders, on a file system that the nodes share")
    )
    umask: Annotated[int, UMASK] = field(
        default=0o077,
        metadata=about(
            "who may read the files of a run: 077 (its user), 027 (the user's group, too) or 022 (everybody); files "
            "with the attempt's token or values of env stay the user's alone"
        ),
    )
    container: ContainerSettings = field(
        default_factory=ContainerSettings, metadata=about("images: how to build and run them")
    )
    python: Annotated[str, LINE] | None = field(
        default=None, metadata=about("the nodes' Python; default: the one that runs torusrun")
    )
    modules: tuple[Annotated[str, LINE], ...] = field(default=(), metadata=about("environment modules to load"))
    purge_modules: bool = field(default=False, metadata=about("whether `module purge` comes before"))
    setup: tuple[Annotated[str, SHELL], ...] = field(
        default=(),
        metadata=about("shell lines of a job after its modules, as in ulimit -n 65536; one that fails ends the job"),
    )
    env: dict[Annotated[str, VARIABLE], Annotated[str, VALUE]] = field(
        default_factory=dict,
        metadata=about("environment variables of the job and its ranks; the same names are refused"),
    )
    ask: tuple[Annotated[str, ASK], ...] = field(
        default=(),
        metadata=about("directives that request nodes in the site's own form, as in '-l rt_F={nodes}'"),
    )
    submit_args: tuple[Annotated[str, ASK], ...] = field(
        default=(), metadata=about("further arguments of the submit command, as in [-g, '{account}']")
    )
    scheduler_args: tuple[Annotated[str, LINE], ...] = field(
        default=(), metadata=about("further options of the job, one directive each, as in --exclusive")
    )
    launcher_args: tuple[Annotated[str, LINE], ...] = field(
        default=(), metadata=about("further arguments of the launcher, one word each")
    )
    remote_shell: Literal["scheduler", "ssh"] | None = field(
        default=None,
        metadata=about(
            "how MPI starts processes on a job's other nodes: ssh, or scheduler (pbs_tmrsh, qrsh -inherit); default: "
            "scheduler under pbs, elsewhere chosen by the MPI"
        ),
    )
    stop_before_s: Annotated[float, DURATION] = field(
        default=60.0,
        metadata=about("how long before the time limit ranks get the signal to write a checkpoint", key="stop_before"),
    )
    kill_after_s: Annotated[float, DURATION] = field(
        default=30.0, metadata=about("how long after a request to end a rank is killed", key="kill_after")
    )
    command_timeout_s: Annotated[float, DURATION] = field(
        default=30.0, metadata=about("how long a scheduler command may take", key="command_timeout")
    )
    poll_interval_s: Annotated[float, DURATION] = field(
        default=10.0,
        metadata=about(
            "how often the scheduler is queried about jobs, by all terminals and processes of a user together",
            key="poll_interval",
        ),
    )
    host: Annotated[str, HOST] | None = field(
        default=None,
        metadata=about(
            "login node that runs the verbs, as in me@login.example or a Host of ~/.ssh/config; default: this machine"
        ),
    )
    connect: Literal["fabric", "openssh"] | None = field(
        default=None,
        metadata=about(
            "how the host is reached: fabric, or openssh (the ssh program); default: openssh if ~/.ssh/config sets "
            "ControlPath for the host, else fabric"
        ),
    )

    @property
    def interpreter(self) -> str:
        """The nodes' Python: the site's `python`, or the one that runs torusrun."""
        return str(expanded(self.python)) if self.python else sys.executable
