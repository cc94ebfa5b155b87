"""LARS: every tensor's step is scaled by the ratio of its weights' norm to its gradient's (You et al. 2017).

    ratio = trust |w| / (|g| + decay |w| + eps), and 1 where |w| or |g| is 0
    u     = ratio (g + decay w)

The learning rate is inside the momentum (MLPerf's reference, NVIDIA's FusedLARS; verified in their code) or outside
(apex's LARC, timm; verified likewise). The two differ as soon as the rate changes:

    inside     v = momentum v + rate u,  w = w - v
    outside    v = momentum v + u,       w = w - rate v

With `ratio_in_momentum: false` u is g + decay w, and the ratio multiplies what is taken from w. Outside, that is the
form of TensorFlow 1.14 (tf.contrib.opt.LARSOptimizer; verified in its wheel; 1.15 has rate and ratio inside).

`lars.ratio_decay` is the decay in the ratio if it differs from that in u. So Fujitsu's two-stage LARS (verified in
their code) is the form inside:

    s = eta |w| / (|g| + wd_b |w| + 1e-9),  m = mom m - s wd_b c_wd(t) w - s lr_b c_lr(t) g,  w = w + m

With v = -m, rate(t) = lr_b c_lr(t) and ratio = s the second is v = momentum v + rate ratio (g + decay w), if
decay(t) = wd_b c_wd(t) / (lr_b c_lr(t)). Theirs has wd_b = wd lr_b and c_wd = c_lr ("decayed with the LR curve"), so
decay = wd = 5e-5 at all times, and ratio_decay = wd_b = 5e-5 x 13 = 6.5e-4.

With momentum_correction the velocity of the form inside changes with the rate: see sgd.py.

Tensors that `skip` names are moved by plain momentum, without ratio and decay.

cpp.py computes this in C++, triton_lars.py on a GPU, and `Foreach` if neither can be used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from torusrun.training.optim.kernel import Foreach, Kernel, Piece, Rule, Unavailable, is_dense
from torusrun.training.optim.sgd import Momentum
from torusrun.training.progress import Moment
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import LarsKeys, Train

KEY = "train.optimizer.lars.form"
GRADIENT = operator.attrgetter("grad")


class LARS(Momentum):
    """The optimizer of a replica: every rank holds and moves all weights. Nothing waits for the device."""

    def __init__(
        self, model: nn.Module, momentum: float, weight_decay: float, lars: LarsKeys, momentum_correction: bool = False
    ) -> None:
        super().__init__(model, momentum_correction and lars.lr_in_momentum)
        skipped = names_skipped(model, lars)
        self._scaled = {weight for name, weight in model.named_parameters() if name not in skipped}
        self._moved: dict[int, tuple[list[int], list[Tensor | None], list[Piece]]] = {}  # by the first address
        self._kernel, self._missing = kernel_for(list(model.parameters()), Rule(momentum, weight_decay, lars))

    def agree(self, all_ranks: Callable[[bool], bool]) -> str | None:
        """Use foreach if any rank must: two kernels differ in the last bits."""
        rule = self._kernel.rule
        if rule.keys.form in ("foreach", "fused") or all_ranks(not self._missing):
            return None
        self._kernel = Foreach(rule)
        why = self._missing or "another rank cannot"
        return f"LARS moves the weights by foreach, since not all ranks can fuse: {why}"

    def before_step(self, moment: Moment, weight_decay: float) -> None:
        self._kernel.rule = replace(self._kernel.rule, weight_decay=weight_decay)

    @torch.no_grad()
    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        if pieces := self._pieces(parameters):
            self._kernel.move(pieces, rate, change=self._change(rate))

    def _pieces(self, parameters: Sequence[nn.Parameter]) -> Sequence[Piece]:
        """The parameters with a gradient: the list of the step before while weights and gradients are the same tensors.

        To know that takes two walks in C; to make the list takes longer than a GPU's step.
        """
        addresses, gradients = [*map(Tensor.data_ptr, parameters)], [*map(GRADIENT, parameters)]
        known = self._moved.get(addresses[0]) if addresses else None
        if known and known[0] == addresses and all(map(operator.is_, known[1], gradients)):
            return known[2]
        learning = [
            (weight, gradient) for weight, gradient in zip(parameters, gradients, strict=True) if gradient is not None
        ]
        pieces = [
            Piece(weight.detach(), _laid_out_as(weight, gradient), self._velocity_of[weight], weight in self._scaled)
            for weight, gradient in learning
        ]
        if learning and all(piece.gradient is given for piece, (_, given) in zip(pieces, learning, strict=True)):
            kept = {first: each for first, each in self._moved.items() if not {*each[0]} & {*addresses}}
            self._moved = {**kept, addresses[0]: (addresses, gradients, pieces)}  # an old layout's memory is free
        return pieces


def names_skipped(model: nn.Module, lars: LarsKeys) -> set[str]:
    """The parameters that get neither ratio nor decay."""
    if lars.skip == "nothing":
        return set()
    if lars.skip == "vectors":
        return {name for name, weight in model.named_parameters() if weight.ndim < 2}
    norms = [(prefix, module) for prefix, module in model.named_modules() if "Norm" in type(module).__name__]
    return {name for prefix, module in norms for name, _ in module.named_parameters(prefix)}


def build(model: nn.Module, train: Train) -> LARS:
    """The optimizer of `train.optimizer`. Raises ConfigError if the form that it names is not available."""
    keys = train.optimizer
    return LARS(model, keys.momentum, keys.weight_decay, keys.lars, keys.momentum_correction)


def kernel_for(weights: Sequence[Tensor], rule: Rule) -> tuple[Kernel, str]:
    """The kernel of this rank, and the reason if it is not fused and should be.

    Raises ConfigError if the form that the recipe names is not available.
    """
    if rule.keys.form == "foreach":
        return Foreach(rule), ""
    try:
        return _fused(weights, rule), ""
    except Unavailable as error:
        if rule.keys.form == "fused":
            raise ConfigError(f"{KEY}: {rule.keys.form!r} is not available: {error}; 'auto' works without") from None
        return Foreach(rule), str(error)


def _fused(weights: Sequence[Tensor], rule: Rule) -> Kernel:
    for weight in weights:
        if weight.dtype != torch.float32 or not is_dense(weight):
            raise Unavailable("it takes float32 weights that are contiguous or channels_last")
    if weights[0].is_cuda:
        try:
            from torusrun.training.optim.triton_lars import Triton  # a second to import
        except ImportError as error:
            raise Unavailable(f"Triton cannot be imported: {error}") from None
        return Triton(rule, weights[0].device)
    from torusrun.training.optim.cpp import Cpp  # starts a compiler

    return Cpp(rule)


def _laid_out_as(weight: Tensor, gradient: Tensor) -> Tensor:
    """The gradient, or a copy of it with the weight's strides and dtype: kernels walk through memory."""
    if gradient.stride() == weight.stride() and gradient.dtype == weight.dtype:
        return gradient
    return torch.empty_like(weight).copy_(gradient)
