"""The settings of a training process: a JSON file (each key present, none unknown), and its rank in the environment."""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from torusrun.training.collectives.chunks import Spans
from torusrun.training.recipe import fits
from torusrun.training.recipe.key import Limits, Pattern
from torusrun.training.recipe.reading import ConfigError as ConfigError
from torusrun.training.recipe.reading import record
from torusrun.training.recipe.train import Train

SCHEMA = 6
MOST_LEVELS = 3
TOKEN = Pattern("a string of 64 hex digits (0-9, a-f)", r"[0-9a-f]{64}", secret=True)


@dataclass(frozen=True)
class Config:
    """One attempt of a run; `grid` has one to three levels, the first varies fastest: rank = x + X * (y + Y * z).

    `by_size` names the all-reduce of a vector by its bytes, for `train.sync.all_reduce: auto`; () for the torus.
    `token` is the secret of the attempt. A process that knows it can pose as a rank, so no message shows it.
    `done` is the file that rank 0 writes when the training is complete. `mean_time_to_failure_s` is
    that of all ranks together. `memory` is the folder for copies of the state in the memory of each node, which may be
    removed after `memory_until_s` (of time.time()): then the job is over.
    """

    schema: int
    run: str
    attempt: Annotated[int, Limits(at_least=1)]
    grid: tuple[int, ...]
    by_size: Spans
    interface: str | None
    rendezvous: Path
    rendezvous_timeout_s: Annotated[float, Limits(above=0, at_most=1e9)]
    token: Annotated[str, TOKEN] = field(repr=False)
    checkpoints: Path
    memory: Path
    memory_until_s: Annotated[float, Limits(at_least=0, at_most=1e12)]
    metrics: Path
    trace: Path
    done: Path
    mean_time_to_failure_s: Annotated[float, Limits(above=0)]
    train: Train


def load(path: Path, world: int) -> Config:
    """Read and check the config of a process group of `world` ranks. Raises ConfigError that names the error."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    try:
        _check_schema(document)
        config = record(Config, document)
        _check(config, world)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def _check_schema(document: object) -> None:
    """Check the version first, so that the error names the version and not the first key that differs."""
    schema = document.get("schema") if isinstance(document, dict) else SCHEMA
    if type(schema) is int and schema != SCHEMA:
        raise ConfigError(f"schema {schema} is not known; this training reads schema {SCHEMA}")


def _check(config: Config, world: int) -> None:
    if not 1 <= len(config.grid) <= MOST_LEVELS:
        raise ConfigError(f"grid must have 1 to {MOST_LEVELS} levels, not {len(config.grid)}")
    if min(config.grid) < 1 or math.prod(config.grid) != world:
        raise ConfigError(f"grid {' x '.join(map(str, config.grid))} does not hold the {world} ranks of WORLD_SIZE")
    firsts = [span.from_bytes for span in config.by_size]
    if firsts and (firsts[0] or firsts != sorted(set(firsts))):
        raise ConfigError(f"by_size must begin at 0 bytes and ascend, not {firsts}")
    for key, message, _ in fits.misfits(config.train, world):
        raise ConfigError(f"{key} {message}")


OTHERS = 32  # data, logs, libraries: a guess that refuses little; not measured


def too_few(world: int) -> str:
    """Raise the limit of open files to the most that this process may have; why `world` ranks need more, or ''.

    gloo connects each rank to all others, and rank 0's store to every rank.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needs = 2 * world + OTHERS
    if soft != resource.RLIM_INFINITY and soft < needs:
        with suppress(ValueError, OSError):  # above the kernel's own limit (fs.nr_open)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY or hard >= needs:
        return ""
    return (
        f"{world} ranks need {needs} open files in each process, and this node allows {hard} (ulimit -Hn): "
        "have its administrators raise the limit, or ask for fewer ranks"
    )


@dataclass(frozen=True)
class Ranks:
    """This process is `rank` of `world`, and `local` is its number on its node."""

    rank: int
    world: int
    local: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Ranks:
        """Read RANK, WORLD_SIZE and LOCAL_RANK. Raises ConfigError for invalid values."""
        ranks = cls(
            rank=_number(environment, "RANK", 0),
            world=_number(environment, "WORLD_SIZE", 1),
            local=_number(environment, "LOCAL_RANK", 0),
        )
        if ranks.rank >= ranks.world:
            raise ConfigError(f"RANK={ranks.rank} is not below WORLD_SIZE={ranks.world}")
        return ranks


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{name}={text!r} in the environment is not a number")
    return int(text)
