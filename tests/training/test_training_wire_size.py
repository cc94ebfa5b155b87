"""What the prediction thinks the demo sends is what the demo sends."""

import torch.distributed as dist

from orchestrator.predict.workload import workload
from training.models.resnet_digits import build
from training.sync.all_reduce import build as all_reduce
from training.sync.gradients import FlatGradients


def test_the_flat_vector_has_as_many_bytes_as_the_prediction_reckons_with() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        vector = FlatGradients(build(classes=10, shape=(1, 8, 8), seed=1), all_reduce("torus", (1, 1)))._vector
    finally:
        dist.destroy_process_group()
    assert vector.nbytes == workload("resnet-digits").gradient_bytes
