"""The running statistics of a model, and those of them that travel with the gradients."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.recipe.train import NormKeys


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
