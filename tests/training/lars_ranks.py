"""What ranks of a RankPool do with LARS: the tasks of test_training_lars_sharded.py."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gradient_ranks import BATCH, Network, Points
from torch import nn
from training_runs import TRAIN, config

from torusrun.training.collectives.all_reduce import build
from torusrun.training.collectives.torus import Torus
from torusrun.training.config import Config
from torusrun.training.learner import Learner
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.optim import cpp, momentum
from torusrun.training.optim.lars import LARS
from torusrun.training.optim.lars import build as build_lars
from torusrun.training.optim.sharded import FirstHalf, ShardedLARS
from torusrun.training.parts import Parts, settle
from torusrun.training.progress import Moment
from torusrun.training.recipe.reading import record
from torusrun.training.recipe.train import LarsKeys, OptimizerKeys, SyncKeys
from torusrun.training.schedule.phases import Course
from torusrun.training.sync.bucket import Arena

MOMENTUM, DECAY = 0.9, 0.01
RATES = (0.1, 0.5, 0.3, 0.2)
BEGINNING = Moment(0.5, 0.5, 0.5, 0.0)


def network() -> nn.Sequential:
    """Tensors of 1 to 4,000 numbers, one without a norm and one in another layout."""
    torch.manual_seed(7)
    layers = [nn.Linear(40, 100), nn.BatchNorm1d(100), nn.Linear(100, 3), nn.Linear(3, 1), nn.Linear(1, 1)]
    net = nn.Sequential(*layers, nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last)
    nn.init.zeros_(net[4].weight)
    return net


def gradients(net: nn.Module, step: int, rank: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(parameter.shape, generator=draw) for parameter in net.parameters()]


def mover(net: nn.Module, keys: dict[str, Any]) -> LARS:
    others = {name: value for name, value in keys.items() if name != "momentum_correction"}
    optimizer = LARS(net, MOMENTUM, 0.5, LarsKeys(trust=0.05, **others), keys.get("momentum_correction", False))
    optimizer.before_step(BEGINNING, DECAY)
    return optimizer


def whole_step(net: nn.Module, optimizer: LARS, step: int, world: int) -> None:
    """A step of one process at the mean of all ranks' gradients."""
    drawn = [gradients(net, step, rank) for rank in range(world)]
    for parameter, *parts in zip(net.parameters(), *drawn, strict=True):
        parameter.grad = torch.stack(parts).mean(0)
    optimizer.step(RATES[step])


def lars_in_shards(rank: int, dims: tuple[int, ...], keys: dict[str, Any], groups: int, state: Any, first: int) -> Any:
    """Two steps in shards, the first of them number `first`, from the weights and velocities of `state` if given.

    The second has one group more.
    """
    net, torus = network(), _torus(dims)
    sharded = mover(net, keys).sharded(torus)
    sharded.before_step(BEGINNING, DECAY)
    answer: dict[str, Any] = {"moved": []}
    for step in (first, first + 1):
        arenas = lay_out(net, sharded, groups + step - first, torus.padded)
        if state is not None and step == first:
            net.load_state_dict(state["model"])
            sharded.load_state_dict(state["optimizer"])
        for parameter, gradient in zip(net.parameters(), gradients(net, step, rank), strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(gradient)
        before = list(torus.wire_bytes)
        for reduction in [FirstHalf(torus).start(arena.vector) for arena in arenas]:
            reduction.wait()
        sharded.step(RATES[step])
        answer["moved"].append(
            {
                "sent_bytes": [after - sent for after, sent in zip(torus.wire_bytes, before, strict=True)],
                "vectors_bytes": sum(arena.vector.nbytes for arena in arenas),
                "velocities_bytes": sum(group.velocity.nbytes for group in sharded.groups),
            }
        )
    sharded.gather()
    velocities = sharded.state_dict()
    answer["last_rates"] = velocities.pop(momentum.KEY, None)
    state = {"model": net.state_dict(), "optimizer": velocities}
    numbers = [tensor.flatten() for part in state.values() for tensor in part.values()]
    bits = hashlib.sha256(b"".join(bytes(tensor.view(torch.uint8).tolist()) for tensor in numbers))
    plain = {name: {key: tensor.tolist() for key, tensor in part.items()} for name, part in state.items()}
    return {**answer, "state": plain, "bits": bits.hexdigest()}


def lay_out(net: nn.Module, sharded: ShardedLARS, groups: int, padded: Callable[[int], int]) -> list[Arena]:
    """Every so many parameters into one group, the gradients in the layouts of the weights."""
    parameters = list(net.parameters())[::-1]
    chosen = [parameters[i::groups] for i in range(groups)]
    arenas = [Arena(group, padded(sum(parameter.numel() for parameter in group))) for group in chosen]
    for group, arena in zip(chosen, arenas, strict=True):
        for parameter, view in zip(group, arena.views, strict=True):
            parameter.grad = view.as_strided(parameter.shape, parameter.stride())
    sharded.lay_out([(group, arena.vector) for group, arena in zip(chosen, arenas, strict=True)])
    return arenas


def _torus(dims: tuple[int, ...]) -> Torus:
    torus = build("torus", dims)
    assert isinstance(torus, Torus)
    return torus


def settled(rank: int, without: int) -> tuple[str, str]:
    """The implementation that ranks take of which one (`without`, -1 for none) has no compiler, and what they say."""
    compilers, said = cpp.COMPILERS, io.StringIO()
    if rank == without:
        cpp.library.cache_clear()
        cpp.COMPILERS = ()  # type: ignore[assignment]
    optimizer = mover(network(), {})
    cpp.COMPILERS = compilers
    with redirect_stderr(said):
        settle(optimizer, torch.device("cpu"))
    return type(optimizer._kernel).__name__, said.getvalue()


def learned(rank: int, grid: tuple[int, ...], folder: str, form: str, buckets: str, steps: int) -> dict[str, Any]:
    """The state of a learner after some steps of the training loop's kind."""
    lars, world = LarsKeys(trust=0.05, form=form), dist.get_world_size()  # type: ignore[arg-type]
    train = replace(
        TRAIN,
        batch=BATCH,
        optimizer=OptimizerKeys("lars", lars=lars),
        sync=SyncKeys(buckets=buckets, count=3),  # type: ignore[arg-type]
    )
    read = replace(record(Config, config(Path(folder), (world, 1))), grid=grid, train=train)
    net = Network(rank)
    course = Course(train, Points.train_samples, lambda moment: 0.1 + 0.01 * moment.steps)
    parts = Parts(Points(), net, build_lars(net, train), course)
    learner = Learner(read, Ranks(rank, world, rank), torch.device("cpu"), parts)
    for _ in range(steps):
        learner.step(stop=False)
    learner.check_alike()
    learner.gather()
    return {part: {key: t.tolist() for key, t in learner.state()[part].items()} for part in ("model", "optimizer")}
