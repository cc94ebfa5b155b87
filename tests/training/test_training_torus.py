"""The 2-D torus all-reduce against a flat one, on real processes, for every grid of 1 to 8 ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torus_ranks import RankPool

GRIDS = [(x, world // x) for world in range(1, 9) for x in range(1, world + 1) if world % x == 0]
FLOAT_BYTES = 4


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[int, RankPool]]:
    pools: dict[int, RankPool] = {}
    yield pools
    for pool in pools.values():
        pool.close()


def pool_of(pools: dict[int, RankPool], world: int) -> RankPool:
    if world not in pools:
        pools[world] = RankPool(world)
    return pools[world]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid[0]}x{grid[1]}")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(elements=st.one_of(st.integers(1, 20), st.integers(1, 3000)), seed=st.integers(0, 10_000))
def test_equals_a_flat_all_reduce(pools: dict[int, RankPool], grid: tuple[int, int], elements: int, seed: int) -> None:
    x_ranks, y_ranks = grid
    answers = pool_of(pools, x_ranks * y_ranks).ask("reduce", x_ranks, y_ranks, elements, seed)
    worst = max(answer["difference"] for answer in answers)
    assert worst < 2e-5, f"the sum over grid {grid} is off by {worst}: a phase reduces the wrong ranks or part"
    assert len({answer["bits"] for answer in answers}) == 1, "ranks differ in bits: their models would drift apart"
    assert sum(answer["row_bytes"] for answer in answers) == 2 * (x_ranks - 1) * y_ranks * elements * FLOAT_BYTES
    assert sum(answer["column_bytes"] for answer in answers) == 2 * (y_ranks - 1) * elements * FLOAT_BYTES


def test_a_grid_of_another_size_is_refused() -> None:
    import torch.distributed as dist

    from training.sync.all_reduce import build

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="grid 2 x 3 does not hold the 1 ranks"):
            build("torus", (2, 3))
    finally:
        dist.destroy_process_group()
