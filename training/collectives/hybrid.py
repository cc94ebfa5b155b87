"""Short vectors by the hierarchical all-reduce, long ones by a ring over all ranks.

Source: Jia et al. 2018 (Tencent), arXiv 1807.11205: hierarchical for small tensors, where the number of steps decides
the time, and a ring for large ones, where the bytes decide (secondary). The limit between them is not published.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .backend import Flat, Hierarchical
from .phases import MakePhases, Pending
from .wire import DTYPES, wire_dtype


class Hybrid:
    """The `hierarchical` for a vector that travels as fewer than `hybrid_bytes`, else the `ring`.

    `wire_bytes` has the bytes of the hierarchical levels, then those of the ring.
    """

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str, hybrid_bytes: int) -> None:
        self.hierarchical, self.ring = Hierarchical(dims, phases, wire), Flat(dims, phases, wire)
        self.ranks, self._wire, self._hybrid_bytes = self.ring.ranks, DTYPES[wire], hybrid_bytes

    @property
    def wire_bytes(self) -> list[float]:
        return [*self.hierarchical.wire_bytes, *self.ring.wire_bytes]

    def padded(self, elements: int) -> int:
        return elements

    def start(self, vector: Tensor) -> Pending:
        """As `AllReduce.start`."""
        return self.chosen(vector).start(vector)

    def mean_(self, vector: Tensor) -> None:
        """As `AllReduce.mean_`."""
        self.chosen(vector).mean_(vector)

    def chosen(self, vector: Tensor) -> Hierarchical | Flat:
        """The all-reduce for a vector of this length and type."""
        short = vector.numel() * wire_dtype(vector, self._wire).itemsize < self._hybrid_bytes
        return self.hierarchical if short else self.ring
