"""The keys of a run for its own program: its code, how it is stopped, and the source of its progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.orchestrator.keys.kinds import DURATION, EXPRESSION, LINE, Limits
from torusrun.training.recipe.key import key

EXIT_CODE = Limits(at_least=0, at_most=255)


@dataclass(frozen=True)
class StopSettings:
    """How the command is stopped when its time limit is near or its user cancels it."""

    signal: Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"] = key(
        "SIGTERM", "the signal that every rank's command gets"
    )
    before_s: Annotated[float, DURATION] | None = key(
        None, "how long before the time limit; default: the site's stop_before", name="before"
    )


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
class MetricsSettings:
    """Where the command's progress is read, besides the JSON lines that it may append to $TORUSRUN_METRICS."""

    pattern: Annotated[str, EXPRESSION] | None = key(
        None,
        "a regular expression over rank 0's output; its named groups are the values (step, total_steps, epoch, "
        "loss, accuracy, lr), as in 'step (?P<step>\\d+).* loss=(?P<loss>\\S+)'",
    )
