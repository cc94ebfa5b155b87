"""Keys that a run and its site both have: secret variables, notices, and software without a container.

`env` says where a secret value is read, and nothing that is shown holds a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from torusrun.orchestrator.keys.kinds import ARGUMENT, LINE, OPERAND, text_kind
from torusrun.training.recipe.key import key

MAIL = text_kind(
    "a mail address",
    r"[A-Za-z0-9_][A-Za-z0-9._%+-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?",
    "write it as me@example.org, or a user of this machine",
)
Moment = Literal["start", "end", "failure", "over"]
PROGRAMS = ("micromamba", "mamba")  # that a `root` can name, in place of a folder


@dataclass(frozen=True)
class Secret:
    """A variable whose value is read by `submit`, on the machine where the user types it."""

    file: Annotated[str, LINE] | None = key(
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


@dataclass(frozen=True)
class Notify:
    """Notices of a run. A run's keys replace those of its site one by one."""

    command: tuple[Annotated[str, ARGUMENT], ...] = key(
        (), "a program, one word each; the facts are in its environment: TORUSRUN_RUN, TORUSRUN_STATE, ..."
    )
    mail: Annotated[str, MAIL] | None = key(None, "an address for sendmail")
    at: tuple[Moment, ...] = key(
        (), "when: start, end or failure (of each attempt), over (no further attempt follows by itself); "
        "default: over",
    )  # fmt: skip

    def over(self, site: Notify) -> Notify:
        """These keys, and those of the site where they are missing."""
        return Notify(self.command or site.command, self.mail or site.mail, self.at or site.at or ("over",))

    @property
    def moments(self) -> tuple[str, ...]:
        """The moments of notices; () if they have no way."""
        return self.at if self.ways else ()

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways by which notices go."""
        return tuple(name for name in ("command", "mail") if getattr(self, name))


@dataclass(frozen=True)
class Software:
    """Software that a job activates before its ranks start: modules first, then one environment."""

    purge: bool = key(False, "whether `module purge` runs first")
    module_paths: tuple[Annotated[str, LINE], ...] = key((), "further folders of modules, as of EasyBuild")
    modules: tuple[Annotated[str, OPERAND], ...] = key((), "environment modules, as EasyBuild or Spack makes them")
    venv: Annotated[str, LINE] | None = key(None, "folder of a Python virtual environment (venv, virtualenv, uv)")
    conda: Annotated[str, OPERAND] | None = key(None, "name or folder of a conda environment")
    spack: Annotated[str, OPERAND] | None = key(None, "name or folder of a Spack environment")
    root: Annotated[str, LINE] | None = key(
        None, "folder in which conda or Spack is installed, or the program micromamba; default: the one on PATH"
    )

    @property
    def given(self) -> bool:
        """Whether anything is activated."""
        return self != Software()

    def relative_paths(self) -> Iterator[tuple[str, str]]:
        """(key, value) of every path that depends on the folder in which a job starts."""
        named = [("module_paths", folder) for folder in self.module_paths]
        named += [(name, value) for name in ("venv", "conda", "spack", "root") if (value := getattr(self, name))]
        for name, value in named:
            on_path = name == "root" and value in PROGRAMS
            a_name = name in ("conda", "spack") and "/" not in value
            if not (value.startswith(("/", "~")) or on_path or a_name):
                yield name, value
