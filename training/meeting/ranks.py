"""The rank of this process, and the open files that it may have.

gloo connects each rank to all others, and rank 0's store to every rank.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from torusrun.training.config import ConfigError

OTHERS = 32  # data, logs, libraries: a guess that refuses little; not measured


def too_few(world: int) -> str:
    """Raise the limit of open files to the most that this process may have; why `world` ranks need more, or ''."""
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
