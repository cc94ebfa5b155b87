"""A model's batch normalization as `train.norm` says, and the statistics that evaluation uses."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torusrun.training.collectives.groups import own_group
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.norm.over_ranks import share_statistics
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import NormKeys


class Norms:
    """The batch normalization of a model, once `convert` has changed it."""

    def __init__(self, modules: list[_BatchNorm], keys: NormKeys) -> None:
        self._modules, self._keys = modules, keys

    @torch.no_grad()
    def before_evaluation(self) -> None:
        """Average the statistics over the ranks, if they are those of the last batch.

        All ranks must call it together, before an evaluation and before weights are compared or kept. Each then has the
        mean of all means and of all variances, as PFN did it (Akiba et al. 2017, arXiv 1711.04325): unlike the variance
        of all samples, it leaves out the distances between the ranks' means. Training does not change: the next batch
        replaces the statistics. A second call changes nothing: float64 holds the sum of equal float32 exactly.
        """
        held = running(self._modules)
        if self._keys.statistics != "last" or not held:
            return
        together = torch.cat([tensor.double() for tensor in held])
        dist.all_reduce(together)
        means = torch.split(together / dist.get_world_size(), [tensor.numel() for tensor in held])
        for tensor, mean in zip(held, means, strict=True):
            tensor.copy_(mean)

    def facts(self) -> dict[str, object]:
        """The facts of the layers for a trace: their number, and the values that they have in common."""
        values = {(module.momentum, module.eps) for module in self._modules}
        momentum, eps = values.pop() if len(values) == 1 else (None, None)
        keys = self._keys
        moving = {"momentum": momentum} if keys.statistics == "moving" else {}
        return {"layers": len(self._modules), "statistics": keys.statistics, **moving, "eps": eps, "ranks": keys.ranks}


def convert(model: nn.Module, keys: NormKeys, ranks: Ranks) -> Norms:
    """Change the batch normalization of `model` in place; it keeps its parameters and buffers.

    All ranks must call it together. Raises ConfigError if the model lacks something that the keys need.
    """
    modules = layers(model)
    if not modules and keys != NormKeys():
        raise ConfigError("train.norm: the model has no batch normalization (no torch.nn.BatchNorm)")
    for module in modules:
        if keys.eps is not None:
            module.eps = keys.eps
        if keys.statistics == "last":
            module.momentum = 1.0  # the newest batch replaces all
        elif keys.momentum is not None:
            module.momentum = keys.momentum
    if keys.ranks > 1:
        _refuse_others(modules)
        first = ranks.rank // keys.ranks * keys.ranks
        group = own_group(list(range(first, first + keys.ranks)))
        for module in modules:
            share_statistics(module, group)
    return Norms(modules, keys)


def _refuse_others(modules: list[_BatchNorm]) -> None:
    for module in modules:
        if type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
            raise ConfigError(f"train.norm.ranks: {type(module).__name__} has a forward pass of its own; write 1")


def layers(model: nn.Module) -> list[_BatchNorm]:
    """The layers of batch normalization, in the order of the model."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def running(modules: list[_BatchNorm]) -> list[Tensor]:
    """Their running means and variances [C]."""
    pairs = [(module.running_mean, module.running_var) for module in modules]
    return [tensor for pair in pairs for tensor in pair if tensor is not None]


def travelling(model: nn.Module, keys: NormKeys) -> list[Tensor]:
    """The buffers that are averaged over the ranks in every step: all with floating-point numbers.

    Statistics of the last batch are not among them: `Norms.before_evaluation` averages those.
    """
    left_out = {id(tensor) for tensor in running(layers(model))} if keys.statistics == "last" else set()
    return [buffer for buffer in model.buffers() if buffer.is_floating_point() and id(buffer) not in left_out]
