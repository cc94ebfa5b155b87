"""The keys of `environment`: the software that a job activates for its command, without a container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from torusrun.orchestrator.keys.kinds import LINE, OPERAND
from torusrun.training.recipe.key import key

PROGRAMS = ("micromamba", "mamba")  # that a `root` can name, in place of a folder


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
