"""Which rank this process is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from training.config import ConfigError


@dataclass(frozen=True)
class Ranks:
    """This process among all: `rank` of `world`, and `local` among those of its node."""

    rank: int
    world: int
    local: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Ranks:
        """Read RANK, WORLD_SIZE and LOCAL_RANK; ConfigError for values that cannot be."""
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
