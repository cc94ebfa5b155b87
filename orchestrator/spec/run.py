"""The keys of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from orchestrator.spec.about import about
from orchestrator.spec.kinds import (
    ARGUMENT,
    AUTO,
    DURATION,
    GRID,
    LINE,
    NAME,
    NODES,
    OPERAND,
    PER_NODE,
    SHELL,
    SIZE,
    VALUE,
    VARIABLE,
)
from orchestrator.spec.program import Checkpoints, ExitCodes, MetricsSettings, StopSettings
from training.recipe.train import Train

NO_CODE = "none"  # as `code`


@dataclass(frozen=True)
class RunSpec:
    """One run: how much of which site it takes, how its ranks are laid out, and what they do: train, or a command."""

    name: Annotated[str, NAME] = field(metadata=about("a name for the run, as in 'name: digits'"))
    site: Annotated[str, LINE] = field(metadata=about("the cluster: a site's name or the path of its file"))
    nodes: Annotated[int, NODES] = field(
        default=1, metadata=about("nodes to ask for; default: as many as the grid fills, else 1")
    )
    ranks_per_node: Annotated[int, PER_NODE] | None = field(
        default=None, metadata=about("ranks on a node; default: the site's node.ranks")
    )
    grid: Annotated[tuple[int, ...], GRID] | None = field(
        default=AUTO,
        metadata=about(
            "ranks in a row, rows, and groups of rows, as in 8, 4x16 or 4x16x2; auto: the fastest on "
            "the hosts of the job"
        ),
    )
    time_s: Annotated[float, DURATION] = field(default=3600.0, metadata=about("time limit of one attempt", key="time"))
    hang_timeout_s: Annotated[float, DURATION] | None = field(
        default=None,
        metadata=about(
            "an attempt without progress for this long is ended, the ranks' stacks are logged; default: 10m for train, "
            "never for a command",
            key="hang_timeout",
        ),
    )
    image: Annotated[str, LINE] | None = field(
        default=None,
        metadata=about(
            "container image: an image file's name or path, a SIF, a sandbox folder, docker-archive:FILE, "
            "oci-archive:FILE, oci:FOLDER, docker://REFERENCE, oras://REFERENCE or library://REFERENCE; "
            "default: no container"
        ),
    )
    queue: Annotated[str, OPERAND] | None = field(
        default=None, metadata=about("partition or queue; default: the site's")
    )
    account: Annotated[str, OPERAND] | None = field(
        default=None, metadata=about("account to charge; default: of the site")
    )
    env: dict[Annotated[str, VARIABLE], Annotated[str, VALUE]] = field(
        default_factory=dict,
        metadata=about("environment variables of the ranks; names of bash's own and TORUSRUN_... are refused"),
    )
    program: Literal["train", "measure"] = field(
        default="train",
        metadata=about("the ranks' work: train, or measure (compute and links, for calibrate)"),
    )
    train: Train = field(default_factory=Train, metadata=about("a training by torusrun; a run has this or 'command'"))
    command: tuple[Annotated[str, ARGUMENT], ...] = field(
        default=(), metadata=about("a program of your own in place of train, one word each, as in [python, train.py]")
    )
    code: Annotated[str, LINE] | None = field(
        default=None,
        metadata=about(
            "folder of your code, for a command or a module:function in train; copied at submit, and the copy is used; "
            "none: no code; default: the folder of the run's file"
        ),
    )
    code_limit_bytes: Annotated[int, SIZE] = field(
        default=100_000_000, metadata=about("size limit of the copied code", key="code_limit")
    )
    setup: tuple[Annotated[str, SHELL], ...] = field(
        default=(), metadata=about("shell lines that the job runs first, after the site's, as in 'ulimit -n 65536'")
    )
    stop: StopSettings = field(default_factory=StopSettings, metadata=about("how the command is stopped"))
    checkpoints: Checkpoints = field(default_factory=Checkpoints, metadata=about("the command's checkpoints"))
    exit_codes: ExitCodes = field(default_factory=ExitCodes, metadata=about("the meaning of the command's exit codes"))
    metrics: MetricsSettings = field(
        default_factory=MetricsSettings, metadata=about("the source of the command's progress")
    )
