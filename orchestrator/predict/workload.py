"""What is trained: its tensors and its images."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import UserError
from orchestrator.predict import epochs
from orchestrator.predict.overlap import tensors
from orchestrator.predict.overlap.tensors import Tensor


@dataclass(frozen=True)
class Workload:
    """A network with its data set."""

    name: str
    layers: tuple[Tensor, ...]
    images: int
    bytes_per_parameter: float

    @property
    def gradient_bytes(self) -> float:
        return self.bytes_per_parameter * sum(layer.parameters for layer in self.layers)


def workload(name: str) -> Workload:
    """`resnet50` on ImageNet in half precision, or `resnet-digits`, the demo, in single. Raises UserError."""
    known = {
        "resnet50": lambda: Workload("resnet50", tensors.resnet50(), epochs.images(), 2.0),
        "resnet-digits": lambda: Workload("resnet-digits", tensors.small_resnet(), 1437, 4.0),
    }
    if name not in known:
        raise UserError(f"--workload {name}: there is none of that name; there are: {', '.join(known)}")
    return known[name]()
