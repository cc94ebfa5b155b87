"""The keys of a sweep: a run file that makes several runs, each with other values of some keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import yaml

from torusrun.orchestrator.keys.kinds import Limits, text_kind
from torusrun.training.recipe.key import key

MOST_MEMBERS = 5000
MEMBERS = Limits(at_least=1, at_most=MOST_MEMBERS)
ARRAYS = Limits(at_least=1, at_most=1_000_000)
KEY = text_kind("the key of a run", r"[A-Za-z_][\w.-]*", "write it with dots, as in train.optimizer.lr")


@dataclass(frozen=True)
class SweepKeys:
    """Values of keys. Its members are the runs with every combination of them."""

    values: dict[Annotated[str, KEY], yaml.Node] = key(
        {}, "any key of a run, as in train.optimizer.lr: a list of values", others=True
    )
    at_once: Annotated[int, MEMBERS] | None = key(None, "members at the same time; default: all, on this machine 1")
