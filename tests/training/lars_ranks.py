"""What ranks of a RankPool do with LARS: the task of test_training_lars_forms.py."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import torch
from torch import nn

from torusrun.training.optim import cpp
from torusrun.training.optim.lars import LARS
from torusrun.training.parts import settle
from torusrun.training.recipe.train import LarsKeys


def settled(rank: int, without: int) -> tuple[str, str]:
    """The implementation that ranks take of which one (`without`, -1 for none) has no compiler, and what they say."""
    compilers, said = cpp.COMPILERS, io.StringIO()
    if rank == without:
        cpp.library.cache_clear()
        cpp.COMPILERS = ()  # type: ignore[assignment]
    optimizer = LARS(nn.Linear(3, 2), 0.9, 0.5, LarsKeys())
    cpp.COMPILERS = compilers
    with redirect_stderr(said):
        settle(optimizer, torch.device("cpu"))
    return type(optimizer._kernel).__name__, said.getvalue()
