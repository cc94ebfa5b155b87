"""Grids and placements: every rank has one slot, hosts keep their order, an error names a wrong slot."""

import itertools
import math
import socket
from operator import mul

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.start.launch_order import fabric
from torusrun.orchestrator.place.hosts.same_host import this_host, without
from torusrun.orchestrator.place.placement.grid import Grid, asked
from torusrun.orchestrator.place.placement.mapping import Placement, misplaced, place
from torusrun.training.meeting.addresses import _towards_others

hosts_of = st.lists(st.from_regex(r"[a-z]{1,4}[0-9]{1,3}", fullmatch=True), min_size=1, max_size=12, unique=True)


@given(hosts_of, st.integers(1, 8), st.data())
def test_every_rank_has_one_place_and_hosts_keep_their_order(
    hosts: list[str], per_node: int, data: st.DataObject
) -> None:
    ranks = len(hosts) * per_node
    dims = data.draw(st.sampled_from([*_shapes(ranks, 1), *_shapes(ranks, 2), *_shapes(ranks, 3)]))
    placement = place(Grid(dims), hosts, per_node)
    assert placement.hosts == hosts
    assert [s.rank for s in placement.slots] == list(range(ranks))
    assert len({(s.host, s.local_rank) for s in placement.slots}) == ranks
    assert len({s.at for s in placement.slots}) == ranks
    x, y, _ = (*dims, 1, 1)[:3]
    assert all(s.rank == sum(map(mul, s.at, (1, x, x * y))) for s in placement.slots)
    assert Placement.from_json(placement.as_json()) == placement
    assert placement.hostfile.split() == [s.host for s in placement.slots]


def _shapes(ranks: int, levels: int) -> list[tuple[int, ...]]:
    sizes = itertools.product([d for d in range(1, ranks + 1) if ranks % d == 0], repeat=levels)
    return [dims for dims in sizes if math.prod(dims) == ranks]


@pytest.mark.parametrize(
    ("dims", "fitting"),
    [
        ((3, 3), "3x3 has 9 ranks, the run has 8; these fit: 1x8, 2x4, 4x2, 8x1"),
        ((4,), "4 has 4 ranks, the run has 8; these fit: 8"),
        ((2, 2, 4), "these fit: 1x1x8, 1x2x4, 1x4x2, 1x8x1, 2x1x4, 2x2x2, 2x4x1, 4x1x2, 4x2x1, 8x1x1"),
    ],
)
def test_the_error_of_a_grid_that_does_not_fit_lists_grids_that_fit(dims: tuple[int, ...], fitting: str) -> None:
    with pytest.raises(ValueError, match=fitting):
        asked(8, 2, dims)


@given(st.integers(1, 3000), st.lists(st.integers(1, 100), min_size=1, max_size=3))
def test_every_grid_that_an_error_offers_fits_and_has_as_many_levels(ranks: int, wrong: list[int]) -> None:
    assume(math.prod(wrong) != ranks)
    with pytest.raises(ValueError) as refused:
        asked(ranks, 1, tuple(wrong))
    listed = str(refused.value).partition("these fit: ")[2].partition(" (the nearest")[0].split(", ")
    offered = [tuple(map(int, text.split("x"))) for text in listed]
    assert 0 < len(offered) <= 12 and len(set(offered)) == len(offered)
    assert all(math.prod(dims) == ranks and len(dims) == len(wrong) for dims in offered)


def test_too_few_hosts_are_refused_and_few_of_many_are_named() -> None:
    with pytest.raises(SiteError, match=r"allocated 1 host \(n1\); a grid of 2x2 with 2 ranks per node needs 2"):
        place(Grid((2, 2)), ["n1", "n1"], 2)
    with pytest.raises(SiteError, match=r"the scheduler allocated 999 hosts \(n0, .*, n7 and 991 more\)"):
        place(Grid((2, 2)), [f"n{n}" for n in range(999)], 2)


def test_the_error_of_a_misplaced_rank_names_both_places() -> None:
    placement = place(Grid((2, 2)), ["n1", "n2"], 2)
    assert misplaced(placement, 2, "n2", 0) is None
    assert misplaced(placement, 2, "n2.cluster.org", 0) is None
    wrong = misplaced(placement, 2, "n1", 0) or ""
    assert "rank 2 runs on n1 as local rank 0, but the placement puts it on n2 as local rank 0" in wrong
    assert misplaced(placement, 7, "n1", 0) is not None


HOSTS = ["gpu-1.cloud.internal", "Node02", "n3.a.org", "n3.b.org"]


@pytest.mark.parametrize(
    ("told", "own", "host"),
    [
        ("gpu-1", "ip-10-0-0-7", "gpu-1.cloud.internal"),  # a cloud: the scheduler alone knows the name
        ("gpu-1", "node02", "gpu-1.cloud.internal"),  # what the scheduler says comes first
        ("", "node02.cluster.org", "Node02"),
        ("NODE02", "vm", "Node02"),
        ("n3.b.org", "n3", "n3.b.org"),
        ("login4", "gpu-1", "gpu-1.cloud.internal"),  # a variable of the user's that means another machine
        ("", "stranger.invalid", "stranger.invalid"),
    ],
)
def test_a_host_knows_its_name_in_the_job(told: str, own: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: own)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [])
    assert this_host(HOSTS, told) == host


def test_a_host_of_another_name_is_known_by_its_address_unless_every_host_has_that() -> None:
    assert this_host(["localhost", "127.0.1.1", "192.0.2.1"], "") == socket.gethostname()
    for family, address in _towards_others():
        assert family == socket.AF_INET
        assert this_host(["192.0.2.1", address], "") == address


def test_ranks_share_the_adapters_in_order() -> None:
    beside = [fabric(["mlx5_0", "mlx5_1"], rank, 4)["UCX_NET_DEVICES"] for rank in range(4)]
    assert beside == ["mlx5_0:1", "mlx5_0:1", "mlx5_1:1", "mlx5_1:1"]
    assert fabric(["mlx5_0", "mlx5_1"], 0, 4)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert fabric([], 0, 4) == {}


def test_hosts_are_left_out_by_any_of_their_names() -> None:
    assert without(["n1.cl.org", "n2.cl.org", "n3"], ["n2", "n3.cl.org"]) == ["n1.cl.org"]
