"""The package of an installation: `torusrun.submit` for Python, and the tools of a script in a run with `command:`.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, torusrun.torus_hook())

`torusrun.Checkpoints` saves and continues: its own description shows the loop. `torusrun.submit("run.yaml")` submits a
run and returns a `Run`; `torusrun.plan("run.yaml")` computes the same plan without touching anything. Names are loaded
on first use, so that the import costs nothing.

This file is in an installed package beside `orchestrator` and `training`, and alone in training/entry/, the folder that
programs get on their path. From both, `torusrun.training` is ours, and `training` is whatever the user calls so.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # without `typing`: it is not imported before cli/main.py has cleaned the path
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    import torch

    from torusrun.orchestrator.cli.api import Run as Run
    from torusrun.orchestrator.cli.api import dry_run as dry_run
    from torusrun.orchestrator.cli.api import open_run as open_run
    from torusrun.orchestrator.cli.api import open_sweep as open_sweep
    from torusrun.orchestrator.cli.api import plan as plan
    from torusrun.orchestrator.cli.api import plan_sweep as plan_sweep
    from torusrun.orchestrator.cli.api import submit as submit
    from torusrun.orchestrator.cli.api import sweep as sweep
    from torusrun.training.script.checkpoints import Checkpoints as Checkpoints

_FOLDER = os.path.dirname(os.path.abspath(__file__))
__path__ = [_FOLDER]
if not os.path.isdir(os.path.join(_FOLDER, "training")):
    __path__.append(os.path.dirname(os.path.dirname(os.path.dirname(_FOLDER))))

_OF_VERBS = ("Run", "dry_run", "open_run", "open_sweep", "plan", "plan_sweep", "submit", "sweep")
__all__ = ["LATER", "Checkpoints", "__version__", "staged", "torus_hook", *_OF_VERBS]
LATER = 75  # an exit code (EX_TEMPFAIL) for `exit_codes: {later: [75]}`: stopped after a checkpoint, to continue


def torus_hook(grid: tuple[int, ...] | None = None) -> Callable[[Any, Any], torch.futures.Future[torch.Tensor]]:
    """A communication hook that averages each bucket of gradients by the torus all-reduce, while backward continues.

    `grid` is (X,), (X, Y) or (X, Y, Z), with rank = (z * Y + y) * X + x; default: the run's own. Every rank calls it
    once, at the same time, after `init_process_group`: it makes the groups of the levels. The hook has a `torus`; its
    `wire_bytes` counts by level the bytes that this rank sends. Raises ValueError if the product of the grid is not the
    number of ranks, or no grid is known.
    """
    from torusrun.training.collectives import all_reduce

    torus = all_reduce.build("torus", grid or _grid_of_run())

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text, like those of this file
        return torus.start(bucket.buffer()).future(bucket.buffer())

    hook.torus = torus  # type: ignore[attr-defined]
    return hook


def staged(path: str | os.PathLike[str]) -> Path:
    """This node's copy of `path`, if the run stages it or a folder above it; else `path`, as outside of a run.

    Raises ValueError if the list of the copies is damaged, or not this user's own.
    """
    from pathlib import Path

    from torusrun.training.files.staged import local

    return local(Path(path))


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """The functions of the verbs, or Checkpoints, which loads torch."""
    if name == "Checkpoints":
        from torusrun.training.script.checkpoints import Checkpoints

        return Checkpoints
    if name == "__version__":
        from torusrun.orchestrator.base.version import __version__

        return __version__
    if name in _OF_VERBS:
        from torusrun.orchestrator.cli import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _grid_of_run() -> tuple[int, ...]:
    import re

    grid = os.environ.get("TORUSRUN_GRID", "")
    if not re.fullmatch(r"\d+(x\d+){0,2}", grid):
        raise ValueError("TORUSRUN_GRID is not set: outside of a run of torusrun, name the grid: torus_hook((4, 2))")
    return tuple(map(int, grid.split("x")))
