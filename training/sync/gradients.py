"""Gradients in buckets, each reduced as soon as its last gradient is complete, while backward continues.

With them travel running statistics, the loss, and the request to stop.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from torusrun.training.collectives.interface import AllReduce
from torusrun.training.counted import first_of
from torusrun.training.meeting.agree import BITS
from torusrun.training.norm import layers, running
from torusrun.training.sync.bucket import Bucket, ReadyTimes
from torusrun.training.sync.plans import Layout, expected_order


class Extras:
    """Numbers in fp32 that are known before backward begins, averaged over the ranks.

    Running statistics of batch normalization travel, so that all ranks hold the same model and one rank's checkpoint
    is the whole state: the `statistics`, or all buffers of floating point if they are None. Other buffers travel, too,
    and keep their bits in a step in which no rank changed them. `like` are tensors with the shapes of the numbers;
    `lay` sets the views. A step: `hold` before its first forward pass, `put`, `take`.
    """

    def __init__(self, model: nn.Module, statistics: Sequence[Tensor] | None = None) -> None:
        floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        changing = {id(tensor) for tensor in running(layers(model))}
        travelling = floats if statistics is None else list(statistics)
        self._others = [tensor for tensor in travelling if id(tensor) not in changing]
        self._statistics = [tensor for tensor in travelling if id(tensor) in changing]
        self._held = [tensor.clone() for tensor in self._others]
        self._views: list[Tensor] = []
        device = next(model.parameters()).device
        # at the end the loss, the request, and for each of the other buffers whether it changed
        self.like = [*self._statistics, *self._others, torch.zeros(2 + len(self._others), device=device)]

    def lay(self, views: Sequence[Tensor]) -> None:
        """Let the numbers travel in `views` from now on."""
        self._views = list(views)

    @torch.no_grad()
    def hold(self) -> None:
        """Keep the buffers as they are before the step: all ranks hold the same."""
        _copy(self._held, self._others)

    @torch.no_grad()
    def put(self, loss: Tensor, stop: bool) -> None:
        """Write this rank's numbers into the views."""
        _copy(self._views[: len(self._statistics)], self._statistics)
        numbers = self._views[-1]
        numbers[0].copy_(loss.detach())
        numbers[1].fill_(float(stop))
        for changed, view, now, held in zip(numbers[2:], self._travelling(), self._others, self._held, strict=True):
            changed.copy_((_bits(now) != _bits(held)).any())
            view.copy_(torch.where(now == held, 0.0, now - held) if now.dtype == torch.float64 else now)

    @torch.no_grad()
    def take(self) -> None:
        """Copy the views' statistics, now the mean of all ranks, into the model."""
        _copy(self._statistics, self._views[: len(self._statistics)])
        for changed, view, now, held in zip(
            self._views[-1][2:], self._travelling(), self._others, self._held, strict=True
        ):
            mean = held + view if now.dtype == torch.float64 else view.to(now.dtype)
            now.copy_(torch.where(changed > 0, mean, held))

    def numbers(self) -> Tensor:
        """[mean loss, above 0 if any rank wants to stop], on the device; the next step writes over it."""
        return self._views[-1][:2]

    def _travelling(self) -> list[Tensor]:
        """The views of the other buffers; of those with float64 the difference travels, which fp32 rounds less."""
        return self._views[len(self._statistics) : -1]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(BITS[tensor.element_size()])


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


SHOWN = 5  # names


class MissingGradient(RuntimeError):
    """Backward did not reach some parameters."""

    def __init__(self, names: Sequence[str], rank: int) -> None:
        super().__init__(
            f"rank {rank}: no gradient came for {first_of(names, SHOWN)}: the loss does not depend on "
            f"{'it' if len(names) == 1 else 'them'} in this step; set requires_grad to False in the model for what "
            "never learns"
        )


class Gradients:
    """The gradients of `module`, averaged over all ranks. A step: `clear`, forward, `begin`, backward, `arriving`.

    Backward makes the gradients anew; those of a complete bucket are copied into its vector together, and every `.grad`
    is then a view of it. To add each to the vector would be a launch for each, and more to read. All ranks reduce their
    buckets, at first a single bucket, in the order of the layout: a complete bucket waits for those before it.
    Parameters that need no gradient at the construction are left out. The extras travel in the first bucket, or before
    all buckets through `apart`; `statistics` are those that travel, None for all. Raises ValueError if parameters
    have several dtypes, or none learns.
    """

    def __init__(
        self,
        module: nn.Module,
        all_reduce: AllReduce,
        *,
        statistics: Sequence[Tensor] | None = None,
        apart: AllReduce | None = None,
        rank: int = 0,
    ) -> None:
        named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
        self._names, self.parameters = list(named), list(named.values())
        if len({parameter.dtype for parameter in self.parameters}) != 1:
            raise ValueError("the trainable parameters must have one dtype, and there must be at least one")
        self.module, self.all_reduce, self._apart = module, all_reduce, apart
        self._rank = rank
        self._extras = Extras(module, statistics)
        self.buckets: list[Bucket] = []
        self._seen: set[int] = set()
        self._started, self._reducing = 0, False
        self.watch: ReadyTimes | None = None
        self.lay_out(Layout(expected_order(len(named)), (len(named),)))
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]

    def lay_out(self, layout: Layout) -> None:
        """Put the gradients into the buckets of `layout`; all ranks call it between the same two steps."""
        dtype, extras, self.buckets = self.parameters[0].dtype, self._extras, []
        if self._apart:
            self.buckets.append(Bucket((), extras.like, self._apart, torch.float32))
        for numbers in layout.buckets:
            like: list[Tensor] = [self.parameters[number] for number in numbers]
            travelling = [] if self.buckets else extras.like
            self.buckets.append(Bucket(numbers, [*like, *travelling], self.all_reduce, dtype))
        extras.lay(self.buckets[0].others)
        self._bucket_of = {number: bucket for bucket in self.buckets for number in bucket.numbers}
        self.clear()

    def facts(self) -> list[dict[str, object]]:
        """The current buckets, in the order of their reduction, for a trace."""
        return [bucket.facts() for bucket in self.buckets]

    def clear(self) -> None:
        """Forget all gradients, before the first forward pass of a step."""
        for parameter in self.parameters:
            parameter.grad = None
        self._seen.clear()
        self._extras.hold()

    def begin(self, loss: Tensor, stop: bool) -> None:
        """Reduce the gradients as they arrive: the next backward pass completes them.

        All ranks get the mean of `loss`, and `stop` if any rank passed it.
        """
        self._extras.put(loss, stop)
        for bucket in self.buckets:
            bucket.waiting_for = set(bucket.numbers)
        self._started, self._reducing = 0, True
        if self.watch:
            self.watch.begin()
        self._start_complete()

    def arriving(self) -> Iterator[Sequence[Parameter]]:
        """After backward: the parameters of bucket after bucket, as soon as their gradients are the ranks' mean.

        It must be taken to its end. Raises PeerLost if another rank is gone. Before it waits, it raises MissingGradient
        if backward did not reach a parameter.
        """
        self._reducing = False
        missing = [name for number, name in enumerate(self._names) if number not in self._seen]
        if missing:
            raise MissingGradient(missing, self._rank)
        for bucket in self.buckets:
            bucket.waiting_for.clear()
        self._start_complete()
        if len(self.buckets) == 1:  # by this thread, which has no other work
            self._gather(self.buckets[0])
            self.buckets[0].reduce()
        for bucket in self.buckets:
            bucket.wait()
            if bucket is self.buckets[0]:
                self._extras.take()
            if bucket.numbers:
                yield [self.parameters[number] for number in bucket.numbers]

    def holding(self) -> AbstractContextManager[object]:
        """Within this context backward adds to the gradients, and none of them becomes complete."""
        return nullcontext()

    def numbers(self) -> Tensor:
        """[mean loss, above 0 if any rank wants to stop] of the last step; the next step writes over it."""
        return self._extras.numbers()

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        mine = weakref.ref(self)  # the collector does not see the references of a parameter's hooks

        def arrived(parameter: Tensor) -> None:
            if gradients := mine():
                gradients._arrived(number)

        return arrived

    def _arrived(self, number: int) -> None:
        self._seen.add(number)
        if self._reducing:
            self._complete(number)

    def _complete(self, number: int) -> None:
        waiting_for = self._bucket_of[number].waiting_for
        if number not in waiting_for:
            raise RuntimeError(
                f"{self._names[number]} got a second gradient in one backward pass, after the first may have "
                "been sent to the other ranks; with checkpointed activations, set use_reentrant=False"
            )
        waiting_for.remove(number)
        if self.watch:
            self.watch.complete(number)
        self._start_complete()

    def _start_complete(self) -> None:
        """Start the complete buckets, in order; a single bucket is complete only when backward ends."""
        while self._started < len(self.buckets) > 1 and not self.buckets[self._started].waiting_for:
            self._gather(self.buckets[self._started])
            self.buckets[self._started].start()
            self._started += 1

    def _gather(self, bucket: Bucket) -> None:
        """Copy the gradients of a complete bucket into its vector."""
        parameters = [self.parameters[number] for number in bucket.numbers]
        made = [parameter.grad for parameter in parameters if parameter.grad is not None]
        _copy(bucket.gradients, [gradient.to_dense() if gradient.is_sparse else gradient for gradient in made])
        for parameter, view in zip(parameters, bucket.gradients, strict=True):
            parameter.grad = view
