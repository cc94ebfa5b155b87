"""The keys of a site: facts about a cluster that hold for every run."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from torusrun.orchestrator.keys import kinds
from torusrun.orchestrator.keys.measured import Measured
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.request import Most, Part, Resources
from torusrun.orchestrator.keys.shared import Notify, Secret, Software
from torusrun.orchestrator.keys.sweep import ARRAYS
from torusrun.orchestrator.keys.topology import Topology
from torusrun.training.recipe.key import key, needed

LINKS = ("inter_node_bytes_per_s", "inter_node_latency_us", "intra_node_bytes_per_s", "intra_node_latency_us")


@dataclass(frozen=True)
class Node:
    """One whole node of the site."""

    ranks: Annotated[int, kinds.PER_NODE] = key(1, "ranks on a node: one per GPU")
    architecture: Annotated[str, kinds.ARCHITECTURE] | None = key(
        None, "the GPUs' architecture, as in sm_70 or gfx90a, for checks on a login node that has none"
    )
    gpus: Annotated[int, kinds.NONE_OR_MORE] = key(0, "its GPUs; a run asks for all of them, or for request.gpus")
    gpu_type: Annotated[str, kinds.GPU_TYPE] | None = key(
        None, "their type, as in v100, if the scheduler should be asked for it"
    )
    hcas: tuple[Annotated[str, kinds.LINE], ...] = key(
        (), "InfiniBand adapters in the order of the ranks that use them, as in [mlx5_0, mlx5_1]"
    )
    gpu_cores: tuple[Annotated[str, kinds.CPUS], ...] = key(
        (), "CPUs near each GPU (nvidia-smi topo -m), as in ['0-19,40-59'], to which its ranks are bound; default: none"
    )
    interface: Annotated[str, kinds.LINE] | None = key(
        None, "network interface of the ranks' traffic, as in ib0; default: by host name"
    )
    inter_node_bytes_per_s: Annotated[float, kinds.RATE] = key(
        12.5e9, "bandwidth of all adapters of a node together, one way", name="inter_node"
    )
    intra_node_bytes_per_s: Annotated[float, kinds.RATE] = key(
        50e9, "bandwidth from one GPU to another in the same node, one way", name="intra_node"
    )
    inter_node_latency_us: Annotated[float, kinds.MICROSECONDS] = key(
        5.0, "microseconds of a small message between nodes, by NCCL with LL in a tree"
    )
    intra_node_latency_us: Annotated[float, kinds.MICROSECONDS] = key(
        0.6, "microseconds of a small message within a node, by NCCL with LL over NVLink"
    )
    mean_time_to_failure_s: Annotated[float, kinds.DURATION] | None = key(
        None,
        "of one node, as in 40d, for the interval of checkpoints; default: 7.9 h of 1,024 ranks",
        name="mean_time_to_failure",
        source="arXiv 2410.21680",
    )


@dataclass(frozen=True)
class ContainerSettings:
    """How this site builds images and runs programs in them."""

    runtime: Annotated[str, kinds.LINE] | None = key(
        None, "apptainer or singularity, or its path, or pyxis (of srun, with enroot); default: the one on PATH"
    )
    host_mpi: Annotated[str, kinds.LINE] | None = key(
        None, "folder of the site's MPI, which is bound into images in place of their own"
    )
    bind: tuple[Annotated[str, kinds.BIND], ...] = key(
        (), "folders of the host to bind: /host, /host:/inside or /host:/inside:ro"
    )
    args: tuple[Annotated[str, kinds.LINE], ...] = key((), "further options of exec, one word each")
    gpu: Literal["nv", "nvccli", "rocm", "none"] | None = key(
        None, "how GPUs get into the container: nv, nvccli, rocm or none; default: nv, for AMD rocm"
    )
    writable: Literal["tmpfs"] | None = key(
        None, "tmpfs: programs may change files of the image, until their rank ends; default: read-only"
    )
    cache: Annotated[str, kinds.LINE] = key(
        "~/torusrun/images", "folder of built images, on a file system that the nodes share"
    )
    build: Literal["fakeroot", "userns", "plain"] = key(
        "fakeroot", "how an image is built without root: fakeroot, userns or plain"
    )
    build_on: Literal["login", "job"] = key("login", "where images are built: login (here) or job (of the scheduler)")
    temporary: Annotated[str, kinds.LINE] | None = key(
        None, "node-local folder for builds; default: the folder of the image"
    )
    driver: Annotated[str, kinds.LINE] | None = key(
        None, "the nodes' GPU driver, for checks on a login node that has none"
    )


@dataclass(frozen=True)
class PreflightSettings:
    """The checks of a job's nodes and of the links between them, before the ranks start."""

    enabled: bool = key(True, "whether jobs of two or more nodes begin with these checks")
    pair_bytes_per_s: Annotated[float, kinds.RATE] | None = key(
        None, "least TCP bandwidth between two nodes, one way; default: a third of that of the fast pairs", name="pair"
    )


@dataclass(frozen=True)
class Site:
    """A cluster, or this machine."""

    scheduler: Annotated[str, kinds.SCHEDULER] = needed(
        "the scheduler: slurm, pbs (PBS Pro, OpenPBS), gridengine, local (this machine), or one of your "
        "own as package.module:Class"
    )
    launcher: Literal["srun", "mpirun", "mpiexec", "mpiexec.hydra", "spawn"] = needed(
        "the program that starts the ranks: srun, mpirun or mpiexec (Open MPI, MPICH or Intel MPI), mpiexec.hydra "
        "(MPICH, Intel MPI), or spawn (processes of this machine)"
    )
    node: Node = key(Node(), "one whole node")
    request: Resources = key(Resources(), "what every job asks for, unless its run asks for something else")
    most: Most = key(Most(), "the most that a run may ask for")
    parts: tuple[Part, ...] = key((), "parts of a node for which the site has names")
    preflight: PreflightSettings = key(PreflightSettings(), "checks before the ranks start")
    measured: Measured = key(Measured(), "what torusrun calibrate has measured, as its file has it")
    points_per_node_hour: Annotated[float, kinds.PRICES] | None = key(
        None, "points that the site charges for an hour of a node"
    )
    topology: Topology | None = key(
        None, "the switches above the nodes; without it ranks fill hosts in the scheduler's order"
    )
    queue: Annotated[str, kinds.OPERAND] | None = key(None, "partition or queue of its jobs")
    account: Annotated[str, kinds.OPERAND] | None = key(None, "account to charge")
    stage: Annotated[str, kinds.LINE] | None = key(
        None,
        "node-local folder for what runs stage, and then for their images, too, as in $SGE_LOCALDIR; default: the "
        "job's own folder or /tmp, without images",
    )
    runs: Annotated[str, kinds.LINE] = key(
        "~/torusrun/runs", "folder of run folders, on a file system that the nodes share"
    )
    umask: Annotated[int, kinds.UMASK] = key(
        0o077,
        "who may read a run: 077 (its user), 027 (the group, too) or 022 (everybody); never token and values of env",
    )
    container: ContainerSettings = key(ContainerSettings(), "images: how to build and run them")
    python: Annotated[str, kinds.LINE] | None = key(None, "the nodes' Python; default: the one that runs torusrun")
    software: Software = key(Software(), "modules and software that every job activates", name="environment")
    setup: tuple[Annotated[str, kinds.SHELL], ...] = key(
        (), "shell lines of a job after its modules; one that fails ends the job"
    )
    env: dict[Annotated[str, kinds.VARIABLE], Annotated[str, kinds.VALUE] | Secret] = key(
        {}, "environment variables of the job and its ranks; only the ranks get a secret"
    )
    notify: Notify = key(Notify(), "notices of the start and the ends of its runs")
    ask: tuple[Annotated[str, kinds.ASK], ...] = key(
        (), "directives that request nodes in the site's own form, as in '-l rt_F={nodes}'"
    )
    submit_args: tuple[Annotated[str, kinds.ASK], ...] = key(
        (), "further arguments of the submit command, as in [-g, '{account}']"
    )
    launcher_args: tuple[Annotated[str, kinds.LINE], ...] = key((), "further arguments of the launcher, one word each")
    remote_shell: Literal["scheduler", "ssh"] | None = key(
        None,
        "how MPI starts processes on other nodes: ssh, or scheduler (pbs_tmrsh, qrsh -inherit); default: scheduler "
        "under pbs, else the MPI's choice",
    )
    largest_array: Annotated[int, ARRAYS] = key(
        1000, "jobs in an array of a sweep; a sweep with more members has several arrays"
    )
    attempts_by: Literal["array", "dependency"] = key(
        "array",
        "how jobs of keep_going.attempts are submitted: an array, or where arrays are forbidden a dependency each",
    )
    stop_before_s: Annotated[float, kinds.DURATION] = key(
        60.0, "how long before the time limit ranks get the signal to write a checkpoint", name="stop_before"
    )
    kill_after_s: Annotated[float, kinds.DURATION] = key(
        30.0, "how long after a request to end a rank is killed", name="kill_after"
    )
    command_timeout_s: Annotated[float, kinds.DURATION] = key(
        30.0, "how long a scheduler command may take", name="command_timeout"
    )
    poll_interval_s: Annotated[float, kinds.DURATION] = key(
        10.0, "how often a user's processes together query the scheduler", name="poll_interval"
    )
    forget_bad_nodes_s: Annotated[float, kinds.EXPIRY] = key(
        86400.0, "how long a host that broke runs is left out, and an end that names it counts", name="forget_bad_nodes"
    )
    host: Annotated[str, kinds.HOST] | None = key(
        None, "login node that runs the verbs, as in me@login.example or a Host of ~/.ssh/config; default: this machine"
    )
    connect: Literal["fabric", "openssh"] | None = key(
        None,
        "how the host is reached: openssh (the ssh program), or fabric; default: openssh if there is ssh, else fabric",
    )

    @property
    def gpus(self) -> int:
        """The GPUs of a node that a run takes."""
        return self.node.gpus if self.request.gpus is None else self.request.gpus

    @property
    def gpu_type(self) -> str | None:
        """Their type, if the request names it."""
        return self.request.gpu_type or self.node.gpu_type

    @property
    def cpus_per_rank(self) -> int:
        """The cores for each rank."""
        return self.request.cpus_per_rank or 1

    @property
    def interpreter(self) -> str:
        """The nodes' Python: the site's `python`, or the Python that runs torusrun."""
        return str(expanded(self.python)) if self.python else sys.executable


@dataclass(frozen=True)
class SiteMeasurements:
    """The file of `torusrun calibrate` beside a site's: link speeds as in `node`, and times; None if not measured."""

    run: Annotated[str, kinds.LINE] = needed("where it was measured")
    inter_node_bytes_per_s: Annotated[float, kinds.RATE] | None = key(None, "", name="inter_node")
    inter_node_latency_us: Annotated[float, kinds.MICROSECONDS] | None = key(None, "")
    intra_node_bytes_per_s: Annotated[float, kinds.RATE] | None = key(None, "", name="intra_node")
    intra_node_latency_us: Annotated[float, kinds.MICROSECONDS] | None = key(None, "")
    measured: Measured = key(Measured(), "")

    def at(self, site: Site) -> Site:
        """The site with the measured values in place of its own."""
        links = {name: value for name in LINKS if (value := getattr(self, name)) is not None}
        old, new = site.measured, self.measured
        error = old.links_error if new.links_error is None else new.links_error
        both = {**old.all_reduce, **new.all_reduce}
        measured = Measured({**old.models, **new.models}, {**old.data, **new.data}, both, error)
        return replace(site, node=replace(site.node, **links), measured=measured)
