"""The schedule that `benchmarks.packets` simulates: the messages that the torus really sends."""

from __future__ import annotations

from math import prod

import pytest
from all_reduce_tasks import sent
from torus_ranks import Pools

from benchmarks.packets.schedule import ITEM_BYTES, chunk_ways

SHAPES = [((2, 3), 1003), ((3, 2), 60), ((6,), 13), ((1, 4), 64), ((2, 2, 2), 999), ((2, 2), 1_300_001)]


@pytest.mark.parametrize(("dims", "elements"), SHAPES)
def test_the_simulated_messages_are_those_of_the_training(pools: Pools, dims: tuple[int, ...], elements: int) -> None:
    for rank, messages in enumerate(pools.of(prod(dims)).ask(sent, dims, elements)):
        halves = [half for way in chunk_ways(dims, rank, elements) for half in way]
        simulated = [(half.right, size * ITEM_BYTES) for half in halves for size in half.sent]
        assert simulated == messages, f"rank {rank} of {dims} sends other messages: mend benchmarks/packets/schedule.py"
