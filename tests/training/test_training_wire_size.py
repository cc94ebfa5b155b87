"""What the prediction thinks the demo sends is what the demo sends."""

import torch.distributed as dist

from torusrun.orchestrator.forecast.workload import workload
from torusrun.training.collectives import all_reduce
from torusrun.training.models.resnet_small import build
from torusrun.training.sync.gradients import Gradients


def test_the_bucket_has_as_many_bytes_as_the_prediction_reckons_with() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        gradients = Gradients(build(classes=10, shape=(1, 8, 8), seed=1), all_reduce.build("torus", (1, 1)))
    finally:
        dist.destroy_process_group()
    assert sum(bucket.vector.nbytes for bucket in gradients.buckets) == workload("resnet-digits").gradient_bytes
