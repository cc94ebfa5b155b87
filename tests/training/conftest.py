"""Ranks for the tests of a module: real processes, started when a test first asks for so many."""

from collections.abc import Iterator

import pytest
from torus_ranks import Pools, RankPool


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    pools = Pools()
    yield pools
    pools.close()


@pytest.fixture
def one(pools: Pools) -> RankPool:
    return pools.of(1)


@pytest.fixture
def two(pools: Pools) -> RankPool:
    return pools.of(2)


@pytest.fixture
def three(pools: Pools) -> RankPool:
    return pools.of(3)


@pytest.fixture
def four(pools: Pools) -> RankPool:
    return pools.of(4)
