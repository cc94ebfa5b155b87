"""Secret variables: `env` says where their values are read, and nothing that is shown holds a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from torusrun.orchestrator.keys import kinds
from torusrun.training.recipe.key import key


@dataclass(frozen=True)
class Secret:
    """A variable whose value is read by `submit`, on the machine where the user types it."""

    file: Annotated[str, kinds.LINE] | None = key(
        None, "the file with the value, as ~/.secrets/wandb; it must be yours, and closed to others", name="from"
    )
    from_shell: bool = key(False, "take the value from the variable of this name in the shell of `submit`")

    def __str__(self) -> str:
        return f"from {self.file}" if self.file else "from the shell of `submit`"


Env = Mapping[str, str | Secret]


def plain(env: Env) -> dict[str, str]:
    """The variables whose values are in the user's file."""
    return {name: value for name, value in env.items() if isinstance(value, str)}


def secret(env: Env) -> dict[str, Secret]:
    """The variables whose values are elsewhere."""
    return {name: value for name, value in env.items() if isinstance(value, Secret)}
