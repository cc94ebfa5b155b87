"""The keys of a sweep: a run file that makes several runs, each with other values of some keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import yaml

from torusrun.orchestrator.keys.kinds import Limits, text_kind
from torusrun.training.recipe.key import key

MOST_MEMBERS = 5000
MEMBERS = Limits(at_least=1, at_most=MOST_MEMBERS)
ARRAYS = Limits(at_least=1, at_most=1_000_000)
SEEDS = Limits(at_least=0, at_most=2**32 - 1)
METRIC = text_kind("the name of a metric", r"[^\s:][^:\r\n]{0,99}", "write it as the run reports it, as in accuracy")
KEY = text_kind("the key of a run", r"[A-Za-z_][\w.-]*", "write it with dots, as in train.optimizer.lr")


@dataclass(frozen=True)
class SweepKeys:
    """Values of keys. Its members are the runs with every combination of them."""

    values: dict[Annotated[str, KEY], yaml.Node] = key(
        {},
        "any key of a run, as in train.optimizer.lr: a list of values; with a "
        "study a list, {from: 1e-3, to: 1.0}, {..., log: true} or {..., step: 0.1}",
        others=True,
    )
    seed: Annotated[int, SEEDS] = key(0, "of a study: the same seed chooses the same values")
    study: Literal["optuna"] | None = key(
        None, "choose values of train and env in the jobs, by the results of earlier members: optuna (an extra)"
    )
    trials: Annotated[int, MEMBERS] | None = key(None, "members of a study")
    metric: Annotated[str, METRIC] | None = key(None, "the result that a study compares, as in accuracy")
    goal: Literal["max", "min"] | None = key(None, "whether a study looks for the largest or the least")
    at_once: Annotated[int, MEMBERS] | None = key(
        None,
        "members at the same time; default: all, of a study an eighth, on this machine 1",
    )
