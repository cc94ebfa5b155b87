"""Short vectors by the hierarchical all-reduce, long ones by a ring over all ranks.

Source: Jia et al. 2018 (Tencent), arXiv 1807.11205: hierarchical for small tensors, whose time is that of its steps,
and a ring for large ones, whose time is that of their bytes (secondary). From how many bytes on is not published.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .backend import Flat, Hierarchical
from .phases import MakePhases, Pending
from .wire import DTYPES, wire_dtype


class Hybrid:
    """The `hierarchical` or the `ring`, by the bytes of a vector as it travels: below `hybrid_bytes`, or not.

    `wire_bytes` are the hierarchical levels', then the ring's.
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
        """What reduces a vector of this length and type."""
        short = vector.numel() * wire_dtype(vector, self._wire).itemsize < self._hybrid_bytes
        return self.hierarchical if short else self.ring
