"""LARS in shards on real processes: what one process computes that holds all weights, for rows of 1 to 4 ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lars_ranks
import pytest
import torch
from torus_ranks import Pools

from torusrun.training.collectives.mesh import wire_bytes
from torusrun.training.optim import momentum
from torusrun.training.optim.lars import build
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import LarsKeys, OptimizerKeys, SyncKeys, Train

STEPS = 2


def in_one_process(keys: dict[str, Any], world: int, steps: range) -> dict[str, Any]:
    net = lars_ranks.network()
    optimizer = lars_ranks.mover(net, keys)
    for step in steps:
        lars_ranks.whole_step(net, optimizer, step, world)
    velocities = {name: value for name, value in optimizer.state_dict().items() if name != momentum.KEY}
    return {"model": net.state_dict(), "optimizer": velocities}


def tensors(state: dict[str, Any]) -> dict[str, Any]:
    return {part: {name: torch.tensor(value) for name, value in state[part].items()} for part in state}


def assert_close(state: dict[str, Any], wanted: dict[str, Any]) -> None:
    for part in wanted:
        assert state[part].keys() == wanted[part].keys()
        for name, value in wanted[part].items():
            torch.testing.assert_close(state[part][name], value, rtol=2e-5, atol=2e-6, msg=f"{part} {name}")


@pytest.mark.parametrize(
    ("dims", "groups", "keys"),
    [
        ((1, 2), 2, {}),
        ((2, 1), 1, {"lr_in_momentum": False}),
        ((2, 2), 3, {"clip": True, "nesterov": True}),
        ((3,), 2, {"ratio_decay": 0.2, "ratio_in_momentum": False}),
        ((2, 2), 2, {"momentum_correction": True}),
        ((4, 1), 10, {"form": "foreach"}),
        ((2, 1, 2), 2, {"skip": "nothing"}),
    ],
)
def test_shards_move_as_one_process_would(
    pools: Pools, dims: tuple[int, ...], groups: int, keys: dict[str, Any]
) -> None:
    world = torch.Size(dims).numel()
    answers = pools.of(world).ask(lars_ranks.lars_in_shards, dims, keys, groups, None, 0)
    assert len({answer["bits"] for answer in answers}) == 1, "ranks differ in bits: replicas drift apart"
    assert_close(tensors(answers[0]["state"]), in_one_process(keys, world, range(STEPS)))
    names = [name for name, _ in lars_ranks.network().named_parameters()]
    kept = dict.fromkeys(names, lars_ranks.RATES[STEPS - 1]) if "momentum_correction" in keys else None
    assert all(answer["last_rates"] == kept for answer in answers), "a resumed run would not know the last rates"
    for moved in (moved for answer in answers for moved in answer["moved"]):
        assert moved["velocities_bytes"] * dims[0] == moved["vectors_bytes"], "a rank keeps 1/X of the velocities"
        expected = wire_bytes(moved["vectors_bytes"], dims)
        assert moved["sent_bytes"] == pytest.approx(expected), "weights cost other bytes than gradients would"


@pytest.mark.parametrize("dims", [(2,), (3,), (2, 2)])
def test_a_checkpoint_continues_in_shards_of_another_grid(pools: Pools, dims: tuple[int, ...]) -> None:
    earlier = pools.of(4).ask(lars_ranks.lars_in_shards, (4,), {}, 2, None, 0)[0]["state"]
    answers = pools.of(torch.Size(dims).numel()).ask(lars_ranks.lars_in_shards, dims, {}, 3, tensors(earlier), STEPS)

    net = lars_ranks.network()
    optimizer = lars_ranks.mover(net, {})
    net.load_state_dict(tensors(earlier)["model"])
    optimizer.load_state_dict(tensors(earlier)["optimizer"])
    for step in range(STEPS, 2 * STEPS):
        lars_ranks.whole_step(net, optimizer, step, torch.Size(dims).numel())
    assert_close(tensors(answers[0]["state"]), {"model": net.state_dict(), "optimizer": optimizer.state_dict()})


@pytest.mark.needs("c++")
def test_ranks_take_foreach_if_one_of_them_has_no_compiler(pools: Pools) -> None:
    assert pools.of(3).ask(lars_ranks.settled, -1) == [("Cpp", "")] * 3
    found = pools.of(3).ask(lars_ranks.settled, 1)
    assert [kernel for kernel, _ in found] == ["Foreach"] * 3
    assert "another rank cannot" in found[0][1] and [said for _, said in found[1:]] == ["", ""], "rank 0 alone says it"
    assert "no C++ compiler" in pools.of(3).ask(lars_ranks.settled, 0)[0][1]


@pytest.mark.parametrize(("grid", "buckets"), [((2,), "one"), ((2, 2), "equal"), ((3,), "exact"), ((1, 2), "fujitsu")])
def test_a_training_in_shards_learns_what_one_with_whole_weights_learns(
    pools: Pools, grid: tuple[int, ...], buckets: str, tmp_path: Path
) -> None:
    pool, steps = pools.of(torch.Size(grid).numel()), 8  # the exact plan is used after the first six
    (tmp_path / "shards").mkdir()
    (tmp_path / "whole").mkdir()
    in_shards = pool.ask(lars_ranks.learned, grid, str(tmp_path / "shards"), "sharded", buckets, steps)
    assert all(state == in_shards[0] for state in in_shards), "ranks differ in bits"
    whole = pool.ask(lars_ranks.learned, grid, str(tmp_path / "whole"), "auto", "one", steps)[0]
    assert_close(tensors(in_shards[0]), tensors(whole))


def test_shards_are_refused_where_they_do_not_go_with_the_rest() -> None:
    optimizer = OptimizerKeys("lars", lars=LarsKeys(form="sharded"))
    with pytest.raises(ConfigError, match="'sharded' needs sync.all_reduce torus, sync.wire fp32"):
        build(lars_ranks.network(), Train(optimizer=optimizer, sync=SyncKeys(wire="bf16")))
