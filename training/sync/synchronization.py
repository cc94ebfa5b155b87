"""The averaging of the ranks' gradients, as `train.sync` of the recipe says: in our buckets, or by torch's own DDP."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from torusrun.training.collectives import all_reduce
from torusrun.training.collectives.interface import AllReduce
from torusrun.training.config import Config, Ranks
from torusrun.training.norm import travelling
from torusrun.training.sync import plans
from torusrun.training.sync.bucket import Bucket
from torusrun.training.sync.gradients import Extras, Gradients, MissingGradient
from torusrun.training.sync.planner import PLAN_FILE, Planner
from torusrun.training.sync.plans import Layout, expected_order

# Extras carry the buffers. torch 2.13 renamed the option and warns about the old name.
NEW_NAME = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
NO_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if NEW_NAME else "broadcast_buffers": False}


class DDPGradients:
    """As `Gradients`, but by DDP with its defaults and gradients as views of its buckets; the extras travel `apart`.

    `module` computes the forward pass.
    """

    def __init__(
        self, module: nn.Module, apart: AllReduce, *, statistics: Sequence[Tensor] | None = None, rank: int = 0
    ) -> None:
        self._named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        self._ddp = DistributedDataParallel(module, gradient_as_bucket_view=True, **NO_BUFFERS)
        self.module: nn.Module = self._ddp
        self._rank = rank
        self._extras = Extras(module, statistics)
        self._bucket = Bucket((), self._extras.like, apart, torch.float32)
        self._extras.lay(self._bucket.others)

    def facts(self) -> list[dict[str, object]]:
        size = sum(parameter.nbytes for parameter in self._named.values())
        return [self._bucket.facts(), {"gradients": len(self._named), "bytes": size, "all_reduce": "ddp"}]

    def clear(self) -> None:
        self._extras.hold()
        for parameter in self._named.values():
            parameter.grad = None

    def begin(self, loss: Tensor, stop: bool) -> None:
        self._extras.put(loss, stop)
        self._bucket.start()

    def arriving(self) -> Iterator[Sequence[Parameter]]:
        missing = [name for name, parameter in self._named.items() if parameter.grad is None]
        if missing:
            raise MissingGradient(missing, self._rank)
        self._bucket.wait()
        self._extras.take()
        yield list(self._named.values())

    def holding(self) -> AbstractContextManager[object]:
        return self._ddp.no_sync()

    def numbers(self) -> Tensor:
        return self._extras.numbers()


Synchronization: TypeAlias = "Gradients | DDPGradients"


def build(config: Config, ranks: Ranks, model: nn.Module) -> tuple[Synchronization, Planner | None]:
    """All ranks must call it at the same time. A planner must be called before every step."""
    keys = config.train.sync
    statistics = travelling(model, config.train.norm)
    if keys.all_reduce == "ddp":
        flat = all_reduce.build("flat", config.grid)
        return DDPGradients(model, flat, statistics=statistics, rank=ranks.rank), None
    reduce = all_reduce.build(keys.all_reduce, config.grid, keys.wire, config.by_size)
    apart = None if keys.wire == "fp32" else all_reduce.build("flat", config.grid)
    gradients = Gradients(model, reduce, statistics=statistics, apart=apart, rank=ranks.rank)
    buckets = keys.buckets
    if buckets == "auto":
        overlaps = ranks.world > 1 and gradients.parameters[0].device.type == "cuda"
        buckets = "exact" if overlaps else "one"
    if buckets == "exact":
        made_for: dict[str, object] = {"grid": list(config.grid), "all_reduce": keys.all_reduce, "wire": keys.wire}
        return gradients, Planner(gradients, config.metrics.with_name(PLAN_FILE), made_for, ranks.rank)
    order = expected_order(len(gradients.parameters))
    sizes = [gradients.parameters[number].nbytes for number in order]
    gradients.lay_out(Layout(order, plans.by_shape(buckets, sizes)))
    return gradients, None
