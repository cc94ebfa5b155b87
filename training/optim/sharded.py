"""LARS in shards: each of the X ranks in a row moves 1/X of the weights and keeps 1/X of the velocities.

Source: Xu et al. 2020, "Automatic Cross-Replica Sharding of Weight Update", arXiv 2004.13336 (abstract verified). After
gradients are reduced to the shards of a row, each rank moves its shard of the weights. The row then gathers weights
instead of gradients: as many bytes, 1/X of the work. Weights travel in their own dtype, float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torusrun.training.collectives.interface import AllReduce, Halves, Pending
from torusrun.training.meeting.agree import everyones
from torusrun.training.optim.kernel import Kernel, Piece, is_dense
from torusrun.training.optim.momentum import LastRates
from torusrun.training.progress import Moment
from torusrun.training.recipe.protocols import Optimizer


class FirstHalf(AllReduce):
    """Reduces to shards, in place of a whole all-reduce: after it a rank has the mean of its own shard only."""

    def __init__(self, halves: Halves) -> None:
        self.halves, self.ranks = halves, halves.ranks

    @property
    def wire_bytes(self) -> Sequence[float]:
        """The bytes of both halves."""
        return self.halves.wire_bytes

    def padded(self, elements: int) -> int:
        return self.halves.padded(elements)

    def start(self, vector: Tensor) -> Pending:
        return self.halves.start_reduce(vector)

    def mean_(self, vector: Tensor) -> None:
        self.start(vector).wait()


class ShardedGroup:
    """Parameters whose gradients are reduced together: their `.grad` are parts of the flat vector `gradients`.

    Their weights also become parts of a flat vector, in the same places and layouts. `pieces` are the parts of the
    parameters with the `numbers` that are in this rank's shard.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], gradients: Tensor, halves: Halves, scaled: set[nn.Parameter]
    ) -> None:
        self.parameters, self._halves = list(parameters), halves
        self.weights = torch.zeros_like(gradients)
        self._places = [_place(parameter.grad, gradients) for parameter in self.parameters]
        for parameter, view in zip(self.parameters, self.views(self.weights), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view
        shard = halves.shard(self.weights)
        self.velocity = torch.zeros_like(shard)
        self._begin, self._end, _ = _place(shard, self.weights)
        self.pieces = [
            Piece(shard[here], halves.shard(gradients)[here], self.velocity[here], self.parameters[number] in scaled)
            for number, here in self._parts()
        ]
        numbers = [number for number, _ in self._parts()]
        self.numbers = torch.tensor(numbers, dtype=torch.int64, device=gradients.device)

    def views(self, vector: Tensor) -> list[Tensor]:
        """The part of a vector for each parameter."""
        places = zip(self.parameters, self._places, strict=True)
        return [vector[begin:end].as_strided(p.shape, stride) for p, (begin, end, stride) in places]

    def of(self, parameters: Sequence[nn.Parameter]) -> tuple[list[Piece], Tensor]:
        """The pieces of these parameters of the group, and their numbers."""
        if len(parameters) == len(self.parameters):
            return self.pieces, self.numbers
        wanted = {number for number, parameter in enumerate(self.parameters) if parameter in set(parameters)}
        which = [place for place, (number, _) in enumerate(self._parts()) if number in wanted]
        return [self.pieces[place] for place in which], self.numbers[which]

    def whole_velocities(self) -> list[Tensor]:
        """The velocity of each parameter, gathered from the row; all ranks must call it together."""
        whole = torch.zeros_like(self.weights)
        self._halves.shard(whole).copy_(self.velocity)
        self._halves.start_gather(whole).wait()
        return self.views(whole)

    def take_velocities(self, velocities: Sequence[Tensor]) -> None:
        """Keep this rank's shard of the whole velocity of each parameter."""
        whole = torch.zeros_like(self.weights)
        for view, velocity in zip(self.views(whole), velocities, strict=True):
            view.copy_(velocity)
        self.velocity.copy_(self._halves.shard(whole))

    def _parts(self) -> Iterator[tuple[int, slice]]:
        """For each parameter in the shard: its number, and its slice of the shard."""
        for number, (begin, end, _) in enumerate(self._places):
            low, high = max(begin, self._begin), min(end, self._end)
            if low < high:
                yield number, slice(low - self._begin, high - self._begin)


class ShardedLARS(Optimizer):
    """The optimizer of one rank of a row. All ranks call each of its methods together, except `load_state_dict`."""

    def __init__(self, scaled: set[nn.Parameter], kernel: Kernel, halves: Halves, last_rates: LastRates) -> None:
        self._names, self._last_rates = last_rates.names, last_rates
        self._scaled, self._kernel, self._halves = scaled, kernel, halves
        self._row = halves.row_group
        self._group_of: dict[nn.Parameter, ShardedGroup] = {}
        self._gathers: list[Pending] = []
        self._gathered: dict[str, Tensor] = {}

    @torch.no_grad()
    def lay_out(self, groups: Sequence[tuple[Sequence[nn.Parameter], Tensor]]) -> None:
        """Change to other groups, between two steps. A group has parameters, and the flat vector of their gradients.

        The velocities are kept. Raises ValueError if a gradient is not a part of its group's vector.
        """
        self.gather()
        made = [ShardedGroup(parameters, gradients, self._halves, self._scaled) for parameters, gradients in groups]
        self._group_of = {parameter: group for group in made for parameter in group.parameters}
        if self._gathered:
            self.load_state_dict(self._gathered)
        self._gathered = {}

    def before_step(self, moment: Moment, weight_decay: float) -> None:
        """Set the decay of the next steps."""
        self._kernel.rule = self._kernel.rule.decaying(weight_decay)

    def step(self, rate: float) -> None:
        """Move all weights; all gradients must be reduced to shards."""
        for group in self.groups:
            self.step_part(group.parameters, rate)
        self.finish()

    @torch.no_grad()
    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        """Move the weights of one group, and begin to gather them; its gradients must be reduced to shards."""
        group = self._group_of[parameters[0]]
        if set(parameters) != set(group.parameters):
            raise ValueError("the parameters of a group move together")
        self._gathered = {}
        squares = group.weights.new_zeros(len(group.parameters), 2, dtype=torch.float64)
        if group.pieces:
            squares[group.numbers] = self._kernel.squares(group.pieces)
        squares = self._over_the_row(squares)
        for change, parameters in self._last_rates.changes(group.parameters, rate):
            pieces, numbers = group.of(parameters)
            if pieces:
                self._kernel.move(pieces, rate, squares[numbers], change)
        self._gathers.append(self._halves.start_gather(group.weights))

    def finish(self) -> None:
        """Finish a step after its last group: every rank then has all weights."""
        for gather in self._gathers:
            gather.wait()
        self._gathers.clear()

    @property
    def groups(self) -> list[ShardedGroup]:
        """The groups, in the given order."""
        return list(dict.fromkeys(self._group_of.values()))

    @torch.no_grad()
    def gather(self) -> None:
        """Gather whole velocities for `state_dict`; they are kept until the next step."""
        for group in self.groups:
            names = [self._names[parameter] for parameter in group.parameters]
            self._gathered.update(zip(names, group.whole_velocities(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The velocities by parameter name, whole, for any grid and form, and the last rates.

        Raises RuntimeError before `gather`.
        """
        if not self._gathered:
            raise RuntimeError("this rank has 1/X of the velocities: call `gather` on all ranks before `state_dict`")
        velocities = {
            name: self._gathered[name] if name in self._gathered else torch.zeros_like(parameter)
            for parameter, name in self._names.items()
        }
        return {**velocities, **self._last_rates.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load whole velocities from a `state_dict` of any form. Raises KeyError if one is missing."""
        for group in self.groups:
            group.take_velocities([state[self._names[parameter]] for parameter in group.parameters])
        self._last_rates.load_state_dict(state)

    def _over_the_row(self, partial: Tensor) -> Tensor:
        """The sum over the row, added in the same order in every row.

        An all-reduce could differ in bits from row to row, and replicas would drift apart.
        """
        if self._row is None:
            return partial
        return everyones(partial, self._row).sum(0)


def _place(part: Tensor | None, vector: Tensor) -> tuple[int, int, tuple[int, ...]]:
    """Begin and end of a part of a flat vector, and its strides."""
    if part is None:
        raise ValueError("a parameter of a group has no gradient")
    if not is_dense(part) or part.untyped_storage().data_ptr() != vector.untyped_storage().data_ptr():
        raise ValueError("a gradient is not a part of its group's vector")
    begin = int(part.storage_offset()) - int(vector.storage_offset())
    return begin, begin + part.numel(), part.stride()
