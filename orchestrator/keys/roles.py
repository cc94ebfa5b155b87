"""The keys of a role: one of several programs in one allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.orchestrator.keys import kinds
from torusrun.training.recipe.key import Limits, key

ROLE_NAME = kinds.text_kind(
    "a role's name", "[a-z][a-z0-9_]{0,30}", "use small letters, digits and '_', beginning with a letter, at most 31"
)
RESTARTS = Limits(at_least=0, at_most=1000)
NO_IMAGE = "none"


@dataclass(frozen=True)
class StopSettings:
    """How the command is stopped when its time limit is near or its user cancels it."""

    signal: Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"] = key(
        "SIGTERM", "the signal that every rank's command gets"
    )
    before_s: Annotated[float, kinds.DURATION] | None = key(
        None, "how long before the time limit; default: the site's stop_before", name="before"
    )


@dataclass(frozen=True)
class MetricsSettings:
    """Where the progress of a program is read, besides the JSON lines that it may append to $TORUSRUN_METRICS."""

    pattern: Annotated[str, kinds.EXPRESSION] | None = key(
        None,
        "a regular expression over its first rank's output; its named groups are the values (step, total_steps, epoch, "
        "loss, accuracy, lr), as in 'step (?P<step>\\d+).* loss=(?P<loss>\\S+)'",
    )


@dataclass(frozen=True)
class Ready:
    """When a service is ready; without a key, once it has started. Its first rank's host checks it, every second."""

    http: Annotated[str, kinds.URL_PATH] | None = key(
        None, "a path, as /health, for which its port answers with a 2xx status"
    )
    tcp: bool = key(False, "whether its port accepts connections")
    log: Annotated[str, kinds.REGULAR] | None = key(None, "a regular expression that a line of its output matches")
    file: Annotated[str, kinds.LINE] | None = key(None, "a file that exists; relative to its working directory")
    within_s: Annotated[float, kinds.DURATION] = key(
        600.0, "how long it may take after its start; then the attempt ends", name="within"
    )

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of its checks."""
        return tuple(name for name in ("http", "tcp", "log", "file") if getattr(self, name))


@dataclass(frozen=True)
class RoleSoftware:
    """A Python of the role's own, in front of the PATH that the job gives all roles."""

    venv: Annotated[str, kinds.LINE] | None = key(None, "folder of a Python virtual environment (venv, virtualenv, uv)")
    conda: Annotated[str, kinds.LINE] | None = key(
        None, "folder of a conda environment; its activation scripts are not run"
    )

    @property
    def given(self) -> dict[str, str]:
        """The folders that are named, by their keys."""
        return {name: folder for name in ("venv", "conda") if (folder := getattr(self, name))}


@dataclass(frozen=True)
class Role:
    """One of several programs of a run."""

    nodes: Annotated[int, kinds.NODES] = key(1, "nodes of its own")
    on: Annotated[str, ROLE_NAME] | None = key(None, "the role on whose nodes it runs, in place of nodes of its own")
    ranks_per_node: Annotated[int, kinds.PER_NODE] | None = key(
        None, "ranks on each of its nodes; default: 1, of the main role the site's node.ranks"
    )
    gpus: Annotated[int, kinds.NONE_OR_MORE] | None = key(
        None, "GPUs of each of its nodes; default: all that roles on its nodes leave, with 'on' none"
    )
    command: tuple[Annotated[str, kinds.ARGUMENT], ...] = key(
        (), "its program, one word each; {port}, {ROLE.hosts}, {ROLE.address}, {ROLE.port} and {ROLE.url} are filled in"
    )
    env: dict[Annotated[str, kinds.VARIABLE], Annotated[str, kinds.VALUE]] = key(
        {}, "its environment variables besides the run's, which have the secrets"
    )
    image: Annotated[str, kinds.LINE] | None = key(None, "its container image; none: no container; default: the run's")
    software: RoleSoftware = key(RoleSoftware(), "its Python, besides the run's environment", name="environment")
    after: tuple[Annotated[str, ROLE_NAME], ...] = key((), "roles that must be ready before it starts")
    ready: Ready = key(Ready(), "when it is ready")
    each: Literal["checkpoint"] | None = key(
        None, "start it once for each checkpoint of the main role; exit code 0: judged"
    )
    newest: bool = key(False, "with 'each', take the newest checkpoint first, and skip those that are older")
    metrics: MetricsSettings = key(MetricsSettings(), "the source of its progress, besides its $TORUSRUN_METRICS")
    alive: bool = key(False, "end the attempt if the service, once ready, fails its check for a minute")
    restart: Annotated[int, RESTARTS] = key(
        0, "times that each of its ranks is started again; then its end is the attempt's"
    )
    stop: StopSettings = key(StopSettings(), "how it is stopped")
    main: bool = key(False, "this role is the run: its end and its checkpoints are the run's")
