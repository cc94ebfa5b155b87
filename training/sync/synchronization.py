"""The averaging of the ranks' gradients, as `train.sync` of the recipe says."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from torch import nn

from torusrun.training.collectives import all_reduce
from torusrun.training.collectives.interface import Halves
from torusrun.training.config import Config
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.norm import travelling
from torusrun.training.optim.lars import LARS
from torusrun.training.optim.sharded import FirstHalf
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.sync import plan_file, plans
from torusrun.training.sync.gradients import Gradients
from torusrun.training.sync.planner import Planner
from torusrun.training.sync.plans import Layout, expected_order

if TYPE_CHECKING:
    from torusrun.training.sync.ddp import DDPGradients
Synchronization: TypeAlias = "Gradients | DDPGradients"


def build(config: Config, ranks: Ranks, model: nn.Module) -> tuple[Synchronization, Planner | None]:
    """All ranks must call it at the same time. The planner, if there is one, must be called before every step."""
    keys, zero = config.train.sync, config.train.sync.missing == "zero"
    statistics = travelling(model, config.train.norm)
    if keys.all_reduce == "ddp":
        from torusrun.training.sync.ddp import DDPGradients

        flat = all_reduce.build("flat", config.grid)
        return DDPGradients(model, flat, statistics=statistics, rank=ranks.rank, missing_is_zero=zero), None
    reduce = all_reduce.build(keys.all_reduce, config.grid, keys.wire, keys.hybrid_bytes)
    apart = None if keys.wire == "fp32" else all_reduce.build("flat", config.grid)
    if config.train.optimizer.name == "lars" and config.train.optimizer.lars.form == "sharded":
        reduce, apart = FirstHalf(cast("Halves", reduce)), reduce  # a torus: LARS's builder refuses all others
    gradients = Gradients(model, reduce, statistics=statistics, apart=apart, rank=ranks.rank, missing_is_zero=zero)
    buckets = keys.buckets
    if buckets == "auto":
        buckets = "exact" if gradients.parameters[0].device.type == "cuda" else "one"
    if buckets == "exact":
        made_for: dict[str, object] = {"grid": list(config.grid), "all_reduce": keys.all_reduce, "wire": keys.wire}
        if keys.all_reduce == "hybrid":
            made_for["hybrid_bytes"] = keys.hybrid_bytes
        return gradients, Planner(gradients, config.metrics.with_name(plan_file.NAME), made_for, ranks.rank)
    order = expected_order(len(gradients.parameters))
    sizes = [gradients.parameters[number].nbytes for number in order]
    gradients.lay_out(Layout(order, plans.by_shape(buckets, sizes, keys.count)))
    return gradients, None


def in_shards(optimizer: Optimizer, gradients: Synchronization) -> Optimizer:
    """The optimizer, or the one that moves shards in its place if gradients are reduced only to shards."""
    if not isinstance(gradients, Gradients) or not isinstance(gradients.all_reduce, FirstHalf):
        return optimizer
    assert isinstance(optimizer, LARS), "only LARS has the form"
    sharded = optimizer.sharded(gradients.all_reduce.halves)

    def lay_out() -> None:
        groups = [([gradients.parameters[n] for n in b.numbers], b.vector) for b in gradients.buckets if b.numbers]
        sharded.lay_out(groups)

    gradients.on_layout = lay_out
    lay_out()
    return sharded
