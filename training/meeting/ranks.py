"""The rank of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torusrun.training.config import ConfigError


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
