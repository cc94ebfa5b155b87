"""The keys of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Literal

from torusrun.orchestrator.keys import kinds
from torusrun.orchestrator.keys.kinds import LINE, NODES, NONE_OR_MORE, Limits
from torusrun.orchestrator.keys.request import Most, Resources
from torusrun.orchestrator.keys.roles import ROLE_NAME, MetricsSettings, Role, StopSettings
from torusrun.orchestrator.keys.shared import Notify, Secret, Software
from torusrun.orchestrator.keys.sweep import SweepKeys
from torusrun.training.recipe.key import key, needed
from torusrun.training.recipe.train import Train

NO_CODE = "none"  # as `code`
FACTOR = Limits(above=1, at_most=100)
JOBS = Limits(at_least=1, at_most=1000)
EACH = "checkpoint of "
OTHERS = kinds.text_kind(
    "checkpoints of a run", f"{EACH}[^{kinds.CONTROL}]{{1,1000}}", "write it as 'checkpoint of RUN'"
)
STAGED = kinds.text_kind(
    "what is staged", rf"([A-Za-z0-9_][A-Za-z0-9_.-]{{0,99}}=)?[/~][^{kinds.CONTROL}]{{1,4000}}",
    "write PATH or NAME=PATH, and begin the path with / or ~",
)  # fmt: skip
EXIT_CODE = Limits(at_least=0, at_most=255)


@dataclass(frozen=True)
class Grow:
    """How much more an attempt asks for than one that ended for lack of it."""

    memory: Annotated[float, FACTOR] | None = key(None, "factor of its memory, after an end for lack of the node's")
    time: Annotated[float, FACTOR] | None = key(None, "factor of its time, after a time limit without a new checkpoint")
    most: Most = key(Most(), "the largest values to which requests grow")


@dataclass(frozen=True)
class KeepGoing:
    """How a run continues after an attempt that ended early."""

    attempts: Annotated[int, JOBS] = key(1, "jobs of the run, one after the other; restarts within a job do not count")
    without_progress: Annotated[int, JOBS] = key(2, "attempts in a row without a new checkpoint that end the run")
    spares: Annotated[int, NONE_OR_MORE] = key(
        0, "nodes to ask for beyond 'nodes': they replace lost nodes within the job"
    )
    min_nodes: Annotated[int, NODES] | None = key(
        None, "fewest nodes on which the run continues within a job; default: nodes"
    )
    grow: Grow = key(Grow(), "whether the next attempt asks for more of what one lacked (docs/guides/keep-going.md)")


@dataclass(frozen=True)
class Checkpoints:
    """Where the command keeps its checkpoints."""

    folder: Annotated[str, LINE] | None = key(
        None, "its folder, relative to the code: kept over attempts; or an absolute path"
    )


@dataclass(frozen=True)
class ExitCodes:
    """What the command's exit codes mean; every other one means that it failed."""

    done: tuple[Annotated[int, EXIT_CODE], ...] = key((0,), "it is done")
    later: tuple[Annotated[int, EXIT_CODE], ...] = key(
        (), "it stopped after a checkpoint, to continue in another attempt, as in [75]"
    )
    never: tuple[Annotated[int, EXIT_CODE], ...] = key((), "it failed, and is not to be started again, as in [78]")


@dataclass(frozen=True)
class RunSpec:
    """One run: how much of which site it takes, how its ranks are laid out, and what they do: train, or a command."""

    name: Annotated[str, kinds.NAME] = needed("a name for the run, as in 'name: digits'")
    site: Annotated[str, kinds.LINE] = needed("the cluster: a site's name or the path of its file")
    nodes: Annotated[int, kinds.NODES] = key(1, "nodes to ask for; default: as many as the grid fills, else 1")
    ranks_per_node: Annotated[int, kinds.PER_NODE] | None = key(
        None,
        "ranks on a node, one for each GPU that they use; default: the site's node.ranks",
        mistaken=("gpus", "gpus_per_node", "nproc_per_node", "ntasks_per_node"),
    )
    grid: Annotated[tuple[int, ...], kinds.GRID] | None = key(
        kinds.AUTO,
        "ranks in a row, rows, and groups of rows, as in 8, 4x16 or 4x16x2; auto: the fastest on the hosts of the job",
    )
    time_s: Annotated[float, kinds.DURATION] = key(3600.0, "time limit of one attempt", name="time")
    hang_timeout_s: Annotated[float, kinds.DURATION] | None = key(
        None,
        "end an attempt without progress for this long; default: 10 to 20 usual steps, never for a command that shows "
        "none (docs/guides/hangs.md)",
        name="hang_timeout",
    )
    keep_going: KeepGoing = key(KeepGoing(), "whether and how the run continues after an attempt that ended early")
    preflight: bool | None = key(
        None,
        "check nodes and links before the ranks start; default: for two or more nodes, as the site's preflight.enabled",
    )
    image: Annotated[str, kinds.LINE] | None = key(
        None,
        "an image file's name or path, a Dockerfile, a SIF, a sandbox folder, "
        "docker-archive:FILE, oci-archive:FILE, oci:FOLDER, docker://REFERENCE, oras://REFERENCE or "
        "library://REFERENCE; default: no container",
    )
    queue: Annotated[str, kinds.OPERAND] | None = key(None, "partition or queue; default: the site's")
    account: Annotated[str, kinds.OPERAND] | None = key(None, "account to charge; default: of the site")
    request: Resources = key(
        Resources(), "what its job asks for besides, in place of the site's (docs/reference/requests.md)"
    )
    stage: tuple[Annotated[str, STAGED], ...] = key(
        (),
        "files and folders that are copied to every node's own disk before the ranks start, each as PATH or NAME=PATH: "
        "they are in $TORUSRUN_STAGED/NAME (docs/guides/stage.md)",
    )
    env: dict[Annotated[str, kinds.VARIABLE], Annotated[str, kinds.VALUE] | Secret] = key(
        {},
        "environment variables of the ranks; a secret is {from: FILE} or {from_shell: true} (docs/guides/secrets.md)",
    )
    notify: Notify = key(Notify(), "notices of its start and its ends")
    program: Literal["train", "measure"] = key(
        "train", "the work of the ranks: train, or measure (compute and links, for calibrate)"
    )
    train: Train = key(Train(), "a training by torusrun; a run has this or 'command'")
    command: tuple[Annotated[str, kinds.ARGUMENT], ...] = key(
        (), "a program of your own in place of train, one word each, as in [python, train.py]"
    )
    each: Annotated[str, OTHERS] | None = key(
        None, "start the command for each checkpoint of another run, as in 'checkpoint of RUN'"
    )
    newest: bool = key(False, "with 'each', take the newest checkpoint first, and skip those that are older")
    code: Annotated[str, kinds.LINE] | None = key(
        None, "folder of your code, copied at submit; none: no code; default: the folder of the run's file"
    )
    software: Software = key(
        Software(), "software that the job activates for the command, after the site's", name="environment"
    )
    setup: tuple[Annotated[str, kinds.SHELL], ...] = key(
        (), "shell lines that the job runs first, after the site's, as in 'ulimit -n 65536'"
    )
    stop: StopSettings = key(StopSettings(), "how the command is stopped")
    checkpoints: Checkpoints = key(Checkpoints(), "the command's checkpoints")
    exit_codes: ExitCodes = key(ExitCodes(), "the meaning of the command's exit codes")
    metrics: MetricsSettings = key(MetricsSettings(), "the source of the command's progress")
    roles: dict[Annotated[str, ROLE_NAME], Role] = key(
        {}, "several programs, by name: the main role, and services (docs/guides/roles.md)"
    )
    sweep: SweepKeys | None = key(None, "makes several runs from this one, with different values of some keys")

    @property
    def judged(self) -> str:
        """The run whose checkpoints it judges, by its folder in a plan; '' for none."""
        return (self.each or "").removeprefix(EACH)

    @property
    def staged_software(self) -> dict[str, str]:
        """The folder of `environment.venv` or `environment.conda`, by its key, if it is staged."""
        paths = [path for _, path in self.staged]
        return {key: path for key in ("venv", "conda") if (path := getattr(self.software, key)) in paths}

    @property
    def staged(self) -> list[tuple[str, str]]:
        """(name, path) of all that is staged; a name is the last part of its path unless it is given."""
        named = [text.partition("=") if text[0] not in "/~" else ("", "", text) for text in self.stage]
        return [(name or PurePath(path).name, path) for name, _, path in named]
