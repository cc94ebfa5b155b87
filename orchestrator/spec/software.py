"""The keys of `environment`: the software that a job activates for its command, without a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from orchestrator.spec.kinds import LINE, OPERAND
from training.recipe.key import key


@dataclass(frozen=True)
class Software:
    """Software that a job activates before its ranks start: modules first, then one environment."""

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
