"""Which errors mean that another rank is gone."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from torusrun.training.collectives.cut_off import PeerLost, cut_off
from torusrun.training.meeting.addresses import RendezvousError
from torusrun.training.meeting.rendezvous import NotThere


@pytest.mark.parametrize(
    "error", [PeerLost("x"), dist.DistNetworkError("x"), dist.DistBackendError("x"), NotThere("x")]
)
def test_errors_of_an_exchange_mean_that_another_rank_is_gone(error: Exception) -> None:
    assert cut_off(error)


@pytest.mark.parametrize(
    "error", [ValueError("x"), RuntimeError("out of memory"), OSError(28, "x"), RendezvousError("x")]
)
def test_other_errors_are_the_ranks_own(error: Exception) -> None:
    assert not cut_off(error)


def test_an_error_raised_inside_torch_distributed_is_one_of_an_exchange() -> None:
    with pytest.raises(ValueError) as caught:
        dist.all_reduce(torch.zeros(1))  # without a process group
    own = RuntimeError("says nothing of connections").with_traceback(caught.tb)
    assert cut_off(own)
    try:
        raise RendezvousError("rank 1 did not come") from own
    except RendezvousError as error:
        assert cut_off(error), "an error that was raised because of another one counts as that one"


def test_a_mistake_in_the_call_of_a_collective_is_the_ranks_own() -> None:
    with pytest.raises(TypeError) as caught:
        dist.all_reduce()  # type: ignore[call-arg]
    assert not cut_off(caught.value)
