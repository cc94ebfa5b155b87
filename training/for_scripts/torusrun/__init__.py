"""For your own script in a run with `command:`: checkpoints, and the torus all-reduce for DistributedDataParallel.

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, torusrun.torus_hook())

    checkpoints = torusrun.Checkpoints(model=model, optimizer=optimizer)
    for step in range(checkpoints.resume(), total):
        ...
        checkpoints.after_step(step + 1)
        if checkpoints.asked_to_stop:
            sys.exit(torusrun.LATER)
    checkpoints.close()

Every rank finds this package on its path. The names of the script's own folders do not matter, because torusrun's
training is loaded under a name below this one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from training.script.checkpoints import Checkpoints

__all__ = ["LATER", "Checkpoints", "torus_hook"]
LATER = 75  # an exit code (EX_TEMPFAIL) for `exit_codes: {later: [75]}`: stopped after a checkpoint, to continue
TRAINING = Path(__file__).resolve().parents[2]


def torus_hook(
    grid: tuple[int, ...] | None = None,
) -> Callable[[Any, Any], torch.futures.Future[torch.Tensor]]:
    """A communication hook that averages each bucket of gradients by the torus all-reduce, while backward continues.

    `grid` is (X,), (X, Y) or (X, Y, Z), with rank = (z * Y + y) * X + x; default: the run's own. Every rank calls it
    once, at the same time, after `init_process_group`: it makes the groups of the levels. The hook has a `torus`; its
    `wire_bytes` counts by level the bytes that this rank sends. Raises ValueError if the product of the grid is not the
    number of ranks, or no grid is known.
    """
    torus = _load("collectives.all_reduce").build("torus", grid or _grid_of_run())

    def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text, like those of this file
        return torus.start(bucket.buffer()).future(bucket.buffer())

    hook.torus = torus  # type: ignore[attr-defined]
    return hook


def __getattr__(name: str) -> Any:
    """Checkpoints, once it is used: it loads torch."""
    if name == "Checkpoints":
        return _load("script.checkpoints").Checkpoints
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _grid_of_run() -> tuple[int, ...]:
    grid = os.environ.get("TORUSRUN_GRID", "")
    if not re.fullmatch(r"\d+(x\d+){0,2}", grid):
        raise ValueError("TORUSRUN_GRID is not set: outside of a run of torusrun, name the grid: torus_hook((4, 2))")
    return tuple(map(int, grid.split("x")))


def _load(name: str) -> Any:
    """A module of torusrun's training as torusrun._training.NAME; modules in it import each other relatively."""
    package = f"{__name__}._training"
    if package not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            package, TRAINING / "__init__.py", submodule_search_locations=[str(TRAINING)]
        )
        assert spec and spec.loader
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    return importlib.import_module(f"{package}.{name}")
