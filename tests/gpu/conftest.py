"""The device of a check: the CPU in the suite, and a card where there is one. See docs/reference/gpu-checks.md."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from benchmarks.gpu import card
from torusrun.training.collectives import device as devices


@pytest.fixture
def cuda() -> torch.device:
    """A card; skips without one, with the reason."""
    if why := card.missing():
        pytest.skip(why.partition(";")[0])
    return torch.device("cuda")


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, and a card."""
    if request.param == "cuda":
        found: torch.device = request.getfixturevalue("cuda")
        return found
    return torch.device("cpu")


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
