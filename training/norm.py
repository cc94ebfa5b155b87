"""Batch normalization as `train.norm` says: over the ranks of a group, and the statistics that evaluation uses.

Source of the normalization over several ranks, on gloo and NCCL: Ying et al. 2018, arXiv 1811.06992, "distributed batch
normalization" (from memory). torch.nn.SyncBatchNorm computes the same, but only on GPUs.

    mean = E[x],  variance = E[x^2] - mean^2        over the samples of all ranks of the group, and over pixels
    y    = weight * xhat + bias                     xhat = (x - mean) / sqrt(variance + eps)
    dx   = weight / sqrt(variance + eps) * (dy - E[dy] - xhat * E[dy * xhat])

E needs one all-reduce of two numbers per channel in the forward pass and one in the backward pass. Weight and bias get
the gradients of this rank's samples: the ranks average them with all others.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from torusrun.training.collectives.interface import exchange, own_group
from torusrun.training.config import Ranks
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import NormKeys


def share_statistics(module: _BatchNorm, group: dist.ProcessGroup) -> None:
    """Make `module` normalize by the batches of all ranks of `group` in training.

    Each rank must bring inputs of the same shape, and all ranks of the group must call the module equally often. Its
    evaluation mode does not change, and communicates nothing.
    """
    alone = module.forward

    def forward(inputs: Tensor) -> Tensor:
        if not module.training:
            return alone(inputs)
        module._check_input_dim(inputs)  # type: ignore[no-untyped-call]
        output: Tensor
        output, mean, variance = _Normalize.apply(inputs, module.weight, module.bias, module.eps, group)  # type: ignore[no-untyped-call]
        _keep(module, mean, variance, inputs.numel() // inputs.shape[1] * group.size())
        return output

    # In place: the optimizer and the model's own attributes know this module.
    module.forward = forward  # type: ignore[method-assign, assignment]


@torch.no_grad()
def _keep(module: _BatchNorm, mean: Tensor, variance: Tensor, count: int) -> None:
    """Move the running statistics towards those of a batch, with the unbiased variance, as torch does."""
    if module.running_mean is None or module.running_var is None or module.num_batches_tracked is None:
        return
    module.num_batches_tracked.add_(1)
    share = module.momentum if module.momentum is not None else 1.0 / float(module.num_batches_tracked)
    unbiased = variance * (count / max(count - 1, 1))
    for running, newest in ((module.running_mean, mean), (module.running_var, unbiased)):
        running.mul_(1 - share).add_(newest, alpha=share)


class _Normalize(torch.autograd.Function):
    """Maps inputs [B, C, ...] to outputs of that shape and dtype, and the mean and variance [C] of the whole group."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: dist.ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        own_variance, own_mean = torch.var_mean(inputs.float(), _all_but_channels(inputs), correction=0)
        # In float64 the difference of the two squares below loses nothing that float32 had.
        first, second = _mean_over(group, own_mean.double(), own_variance.double() + own_mean.double().square())
        mean, variance = first.float(), (second - first.square()).clamp(min=0.0).float()
        ctx.save_for_backward(inputs, weight, mean, torch.rsqrt(variance + eps))
        ctx.group = group
        ctx.mark_non_differentiable(mean, variance)
        output = functional.batch_norm(inputs, mean, variance, weight, bias, training=False, eps=eps)
        return output, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None]:
        inputs, weight, mean, scale = ctx.saved_tensors
        dims, shape = _all_but_channels(inputs), [1, -1, *[1] * (inputs.ndim - 2)]
        dy = gradient.float()
        xhat = (inputs.float() - mean.view(shape)) * scale.view(shape)
        own_sums = dy.sum(dims), (dy * xhat).sum(dims)
        count = inputs.numel() // inputs.shape[1]
        first, second = (each.view(shape) / count for each in _mean_over(ctx.group, *own_sums))
        factor = scale if weight is None else scale * weight
        dx = (dy - first - xhat * second) * factor.view(shape)
        wanted = ctx.needs_input_grad
        return dx.to(inputs.dtype), own_sums[1] if wanted[1] else None, own_sums[0] if wanted[2] else None, None, None


def _mean_over(group: dist.ProcessGroup, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The means of two vectors over the ranks of a group, by one all-reduce of [first, second]."""
    both = torch.cat([first, second])
    with exchange(group):
        dist.all_reduce(both, group=group)
    mean = both / group.size()
    return mean[: len(first)], mean[len(first) :]


def _all_but_channels(inputs: Tensor) -> list[int]:
    return [dim for dim in range(inputs.ndim) if dim != 1]


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
        for module in modules:
            if type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
                raise ConfigError(f"train.norm.ranks: {type(module).__name__} has a forward pass of its own; write 1")
        first = ranks.rank // keys.ranks * keys.ranks
        group = own_group(list(range(first, first + keys.ranks)))
        for module in modules:
            share_statistics(module, group)
    return Norms(modules, keys)


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
