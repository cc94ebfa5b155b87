"""Every all-reduce against the exact mean, on real processes, for meshes of 1 to 12 ranks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
import torch.distributed as dist
from all_reduce_tasks import HYBRID_BYTES, Vector, lose_one, means
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torus_ranks import Pools, RankPool

from torusrun.training.collectives.all_reduce import build
from torusrun.training.collectives.chunks import chunk_weights, split
from torusrun.training.collectives.interface import Mesh, wire_bytes

MOST_RANKS = 12
MESHES = sorted(
    (dims for levels in (1, 2, 3) for dims in product(range(1, MOST_RANKS + 1), repeat=levels) if prod(dims) <= 12),
    key=prod,  # one world after the other
)
# Rings of even and odd length on every level, first and last; a level of one rank has no phase.
REDUCED = [
    (1,), (1, 1, 1), (2,), (3,), (1, 3), (3, 1), (4,), (2, 2), (2, 1, 2), (1, 2, 2), (2, 2, 1), (5,), (2, 3), (3, 2),
    (8,), (4, 2), (2, 2, 2), (3, 3), (2, 2, 3),
]  # fmt: skip
TIMEOUT_S = 8.0  # of a collective; on a busy machine the ranks begin the first one seconds apart
WHOLE, TINY_CHUNKS = 1024 * 1024, 16  # bytes of the smallest chunk

dtypes = st.sampled_from(["fp32", "fp16", "bf16"])
vectors = st.builds(
    Vector,
    elements=st.one_of(st.integers(1, 20), st.integers(1, 3000), st.sampled_from([97, 1021, 70_001])),
    dtype=dtypes,
    scale=st.sampled_from([1.0, 6e4, 1e-6]),
    seed=st.integers(0, 10_000),
)
some = settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def named(dims: object) -> str:
    return "x".join(map(str, dims)) if isinstance(dims, tuple) else str(dims)


def ask(pools: Pools, task: Callable[..., Any], name: str, dims: tuple[int, ...], *arguments: Any) -> list[Any]:
    """Ask the ranks of a mesh."""
    return pools.of(prod(dims)).ask(task, name, dims, *arguments)


@pytest.mark.parametrize("dims", REDUCED, ids=named)
@some
@given(
    together=st.lists(vectors, min_size=1, max_size=3), wire=dtypes, chunk_bytes=st.sampled_from([WHOLE, TINY_CHUNKS])
)
def test_the_torus_gives_all_ranks_the_mean(
    pools: Pools, dims: tuple[int, ...], together: list[Vector], wire: str, chunk_bytes: int
) -> None:
    roundings = 2 + sum((d + 1) / 2 if d > 1 else 0 for d in dims)
    answers = ask(pools, means, "torus", dims, wire, together, chunk_bytes, roundings)
    check(answers)
    sizes = [v.elements * (4 if v.dtype == wire == "fp32" else 2) for v in together]
    for level in range(len(dims)):
        sent = sum(answer["bytes"][level] for answer in answers)
        assert sent == pytest.approx(prod(dims) * wire_bytes(sum(sizes), dims)[level]), f"level {level} sends more"


@pytest.mark.parametrize("dims", [(4,), (1, 3, 2), (2, 2, 2)], ids=named)
@pytest.mark.parametrize("name", ["flat", "hierarchical", "hybrid"])
@some
@given(together=st.lists(vectors, min_size=1, max_size=3), wire=dtypes)
def test_the_algorithms_to_compare_with_give_the_mean(
    pools: Pools, name: str, dims: tuple[int, ...], together: list[Vector], wire: str
) -> None:
    answers = ask(pools, means, name, dims, wire, together, WHOLE, 2 * prod(dims))
    check(answers)
    if name == "hybrid":
        sizes = [v.elements * (4 if v.dtype == wire == "fp32" else 2) for v in together]
        long_bytes = sum(size for size in sizes if size >= HYBRID_BYTES)
        ring_bytes = sum(answer["bytes"][-1] for answer in answers)
        assert ring_bytes == pytest.approx(2 * (prod(dims) - 1) * long_bytes), "the ring carries the long vectors alone"


@pytest.mark.parametrize("dims", [(4,), (2, 2), (2, 2, 2)], ids=named)
@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_all_ranks_choose_alike_by_size_and_get_the_mean_on_both_sides_of_a_limit(
    pools: Pools, dims: tuple[int, ...], wire: str
) -> None:
    """The limits are of what travels: half the bytes of the vector in 16 bits."""
    item = 2 if wire == "bf16" else 4
    edges = [size // item for size in (HYBRID_BYTES, 20 * HYBRID_BYTES)]
    together = [Vector(edge + beyond, "fp32", 1.0, edge) for edge in edges for beyond in (-1, 0)]
    answers = ask(pools, means, "auto", dims, wire, together, TINY_CHUNKS, 2 * prod(dims))
    check(answers)
    assert [answer["names"] for answer in answers] == prod(dims) * [["flat", "torus", "torus", "flat"]]


@pytest.mark.parametrize("dims", [(1,), (3,), (2, 2), (3, 1, 2)], ids=named)
def test_the_phases_for_nccl_give_the_mean_over_other_collectives(pools: Pools, dims: tuple[int, ...]) -> None:
    together = [Vector(elements, "fp32", 1.0, elements) for elements in (1, 240, 70_001)]
    check(ask(pools, means, "nccl", dims, "fp32", together, TINY_CHUNKS, 2 * prod(dims)))


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("name, dims", [("torus", (2, 2)), ("flat", (4,)), ("hierarchical", (2, 2))])
def test_a_rank_that_is_lost_in_the_middle_ends_all_others(name: str, dims: tuple[int, ...], how: str) -> None:
    pool = RankPool(prod(dims), TIMEOUT_S)
    try:
        answers = pool.ask(lose_one, name, dims, how, lost=1)
    finally:
        pool.close()
    assert len(answers) == prod(dims) - 1
    for said in answers:
        assert said, "a rank has the mean though one gave it nothing"
        assert all("rank" in each and "lost" in each for each in said)
    if name == "torus":
        last = f"rank {prod(dims) - 1} is lost"
        assert any(last in each for said in answers for each in said), "nobody names the lost rank"


@pytest.mark.parametrize("dims", MESHES, ids=named)
def test_a_mesh_puts_every_rank_into_one_group_of_each_level(dims: tuple[int, ...]) -> None:
    mesh = Mesh(dims)
    assert len({mesh.coordinates(rank) for rank in range(mesh.ranks)}) == mesh.ranks
    for level, size in enumerate(dims):
        for rank in range(mesh.ranks):
            group = mesh.group(level, rank)
            places = [mesh.coordinates(other) for other in group]
            assert [place[level] for place in places] == list(range(size))
            assert len({place[:level] + place[level + 1 :] for place in places}) == 1
            assert rank in group and all(mesh.group(level, other) == group for other in group)


@pytest.mark.parametrize("dims", [(), (2, 2, 2, 2), (0, 4), (-1,)])
def test_a_mesh_of_other_levels_is_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a grid has 1 to 3 levels of at least 1 rank"):
        Mesh(dims)


def test_a_grid_that_does_not_hold_the_ranks_is_refused() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="grid 2 x 3 does not hold the 1 ranks"):
            build("torus", (2, 3))
    finally:
        dist.destroy_process_group()


@given(elements=st.integers(1, 10**9))
def test_chunks_are_few_and_not_small(elements: int) -> None:
    weights = chunk_weights(4 * elements)
    assert len(weights) <= 9 and weights == weights[::-1]
    assert len(weights) == 1 or 4 * elements / sum(weights) >= WHOLE


@given(
    elements=st.integers(1, 500), weights=st.lists(st.integers(1, 9), min_size=1, max_size=9), unit=st.integers(1, 7)
)
def test_parts_lie_side_by_side(elements: int, weights: list[int], unit: int) -> None:
    vector = torch.arange(elements * unit)
    parts = split(vector, weights, unit)
    assert torch.equal(torch.cat(parts), vector) and all(part.numel() % unit == 0 for part in parts)


def check(answers: list[dict[str, Any]]) -> None:
    worst = max(answer["excess"] for answer in answers)
    assert worst <= 1, f"the mean is off by {worst} times what rounding explains"
    assert len({answer["bits"] for answer in answers}) == 1, "ranks differ in bits: their models would drift apart"
    assert all(answer["again"] == answer["bits"] for answer in answers), "the same numbers gave other bits"
