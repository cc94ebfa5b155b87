"""The device of a check: the CPU in the suite, and a card where there is one. See docs/reference/gpu-checks.md."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from benchmarks.gpu import card
from training.collectives import device as devices


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Skips without a card, with the reason."""
    if request.param == "cuda" and (why := card.missing()):
        pytest.skip(why)
    return torch.device(request.param)


@pytest.fixture
def alone(device: torch.device) -> Iterator[torch.device]:
    """The device, with this process as the only rank."""
    threads = torch.get_num_threads()
    if device.type == "cuda":
        device = devices.prepare("cuda", 0)
    torch.set_num_threads(1)
    dist.init_process_group(devices.backend(device), store=dist.HashStore(), rank=0, world_size=1)
    yield device
    dist.destroy_process_group()
    torch.set_num_threads(threads)
