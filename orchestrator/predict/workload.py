"""What is trained: its tensors and its images."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import UserError
from orchestrator.predict import epochs
from orchestrator.predict.overlap import tensors
from orchestrator.predict.overlap.tensors import Tensor


@dataclass(frozen=True)
class Workload:
    """A network with its data set. `overlaps`: gradients go in groups during backward, else all at once after it."""

    name: str
    layers: tuple[Tensor, ...]
    images: int
    test_images: int
    bytes_per_parameter: float
    overlaps: bool

    @property
    def gradient_bytes(self) -> float:
        return self.bytes_per_parameter * sum(layer.parameters for layer in self.layers)


def workload(name: str) -> Workload:
    """`resnet50` on ImageNet in half precision, or `resnet-digits`, the demo, in single. Raises UserError.

    The demo's training sends running statistics, the loss and a flag along with its gradients (training/sync).
    """
    known = {
        "resnet50": lambda: Workload(
            "resnet50", tensors.resnet50(), epochs.images(), epochs.validation_images(), 2.0, True
        ),
        "resnet-digits": lambda: Workload(
            "resnet-digits", (*tensors.small_resnet(), tensors.small_resnet_statistics()), 1437, 360, 4.0, False
        ),
    }
    if name not in known:
        raise UserError(f"--workload {name}: there is none of that name; there are: {', '.join(known)}")
    return known[name]()
